/** One run of a session's shell, from its start to its end. It runs one command at a time; the session ensures that. */

import { closeSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { Socket } from "node:net";
import { basename } from "node:path/posix";
import { SandlotError } from "@sandlot/contract";
import { asCommand } from "../exec/as-command.ts";
import { prefixed, shell } from "../exec/command.ts";
import type { Fifo } from "../exec/fifo-pool.ts";
import { maskedStdio } from "../exec/masked-descriptors.ts";
import { tagNextChild } from "../exec/process-tag.ts";
import { type StartedProcess, startProcess } from "../processes/start-process.ts";
import { parseRecord, preludeFor, type ShellRecord } from "./shell-script.ts";

export interface ShellPipes {
  /** Written by us: what the shell runs. */
  readonly script: Fifo;
  /** Read by us: the records. */
  readonly status: Fifo;
}

export interface ShellPlace {
  readonly cwd: string;
  readonly temporaryDirectory: string;
  readonly commandPrefix: readonly string[];
}

export interface ShellEnd {
  readonly exitCode: number | null;
  readonly signal: string | null;
}

/** A directory's name has at most 4,096 bytes. */
const RECORD_MAX_BYTES = 16 * 1024;

export class ShellProcess {
  /** Resolves when the shell itself is gone. */
  readonly ended: Promise<ShellEnd>;
  readonly #child: StartedProcess;
  readonly #pipes: ShellPipes;
  readonly #script: Socket;
  #isOver = false;
  #onRecord: (record: ShellRecord) => void = () => {};

  constructor(pipes: ShellPipes, place: ShellPlace, env: Readonly<Record<string, string>>, key: string) {
    const found = shell();
    const home = mkdtempSync(`${place.temporaryDirectory}/.sandboxd-shell-`);
    const name = basename(found.file);
    symlinkSync(pipes.script.path, `${home}/${name}`);
    this.#pipes = pipes;
    this.#script = new Socket({ fd: pipes.script.writeFd, readable: false, writable: true });
    // A shell that is gone takes no script; `ended` reports its end.
    this.#script.on("error", () => {});
    const stdio = maskedStdio(["ignore", "ignore", "ignore"]);
    const { file, args } = prefixed(place.commandPrefix, { file: found.file, args: [...found.args, name] });
    tagNextChild(key);
    this.#child = asCommand(() => startProcess(file, args, { cwd: home, env, detached: true, stdio }));
    this.ended = new Promise((resolve) => {
      this.#child.once("exit", (exitCode, signal) => resolve({ exitCode, signal }));
      this.#child.once("error", () => resolve({ exitCode: 127, signal: null }));
    });
    const records = this.#listen();
    void this.ended.then(() => {
      this.#isOver = true;
      rmSync(home, { recursive: true, force: true });
      records.destroy();
      this.#script.destroy();
      closeSync(pipes.script.readFd);
      closeSync(pipes.status.writeFd);
      // Other processes may still have them open.
      pipes.script.discard();
      pipes.status.discard();
    });
    this.#script.write(preludeFor(place.cwd));
  }

  get pid(): number | null {
    return this.#child.pid ?? null;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  get statusPipe(): string {
    return this.#pipes.status.path;
  }

  /** Sends the shell the next piece of its script; resolves with the record that carries `nonce`. */
  tell(program: string, nonce: string): Promise<ShellRecord> {
    return new Promise((resolve) => {
      this.#onRecord = (record) => {
        if (record.nonce === nonce) resolve(record);
      };
      this.#script.write(program);
    });
  }

  #listen(): Socket {
    let held = "";
    const socket = new Socket({ fd: this.#pipes.status.readFd, readable: true, writable: false });
    socket.setEncoding("utf8");
    socket.on("error", () => {});
    socket.on("data", (text: string) => {
      const parts = (held + text).split("\0");
      held = (parts.pop() ?? "").slice(-RECORD_MAX_BYTES);
      for (const part of parts) {
        const record = parseRecord(part);
        if (record !== null) this.#onRecord(record);
      }
    });
    return socket;
  }
}

/** The error of a session without named pipes. */
export function noPipes(): SandlotError {
  const neededBy = "a session, for pipes that have a name";
  return new SandlotError("capability_missing", { backend: "sandboxd", capability: "mkfifo", neededBy });
}
