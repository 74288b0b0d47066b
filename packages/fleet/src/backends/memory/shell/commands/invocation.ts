/**
 * One run of one command: its arguments, its streams and the operations that all commands share.
 */

import type { Process } from "../../exec/machine.ts";
import type { Sink, Source, Streams } from "../../exec/streams.ts";
import type { FileTree } from "../../files/tree.ts";
import { sentenceOf, UsageError } from "../failure.ts";
import { openSource } from "../redirect.ts";
import type { ShellState } from "../state.ts";
import { Unsupported } from "../syntax.ts";

export type CommandFunction = (command: Invocation) => Promise<number>;
export type CommandTable = Readonly<Record<string, CommandFunction>>;

/** Calls back into the interpreter, for commands that run others. */
export interface Runner {
  childShell(
    state: ShellState,
    script: string,
    name: string,
    positional: readonly string[],
    streams: Streams,
  ): Promise<number>;
  isCommand(name: string): boolean;
}

const WRITE_MAX_BYTES = 64 * 1024;

export class Invocation {
  readonly state: ShellState;
  readonly name: string;
  readonly args: readonly string[];
  readonly streams: Streams;
  readonly runner: Runner;

  constructor(state: ShellState, name: string, args: readonly string[], streams: Streams, runner: Runner) {
    this.state = state;
    this.name = name;
    this.args = args;
    this.streams = streams;
    this.runner = runner;
  }

  get tree(): FileTree {
    return this.state.tree;
  }

  get process(): Process {
    return this.state.process;
  }

  get stdin(): Source {
    return this.streams.stdin;
  }

  /** Writes in pieces and yields between them, so that a large output does not block the host. */
  async write(content: string | Uint8Array, sink: Sink = this.streams.stdout): Promise<void> {
    const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
    for (let at = 0; at < bytes.length; at += WRITE_MAX_BYTES) {
      await this.process.breathe();
      await sink.write(bytes.subarray(at, at + WRITE_MAX_BYTES));
    }
  }

  async fail(text: string, status = 1): Promise<number> {
    await this.write(`${this.name}: ${text}\n`, this.streams.stderr);
    return status;
  }

  resolve(path: string): string {
    return this.state.resolve(path);
  }

  /** Tries one operand after another. A failure is reported and makes the status 1; the others go on. */
  async each(
    operands: readonly string[],
    act: (path: string, operand: string) => void | Promise<void>,
  ): Promise<number> {
    let status = 0;
    for (const operand of operands) {
      await this.process.breathe();
      try {
        await act(this.resolve(operand), operand);
      } catch (error) {
        const sentence = sentenceOf(error);
        if (sentence === null) throw error;
        status = await this.fail(`${operand}: ${sentence}`);
      }
    }
    return status;
  }

  /** The named files; standard input when none is named, or for `-`. */
  async eachInput(files: readonly string[], act: (source: Source, name: string) => Promise<void>): Promise<number> {
    return this.each(files.length === 0 ? ["-"] : files, async (_, operand) => {
      await act(operand === "-" ? this.stdin : openSource(this.state, operand, this.stdin), operand);
    });
  }

  /** All input as one text with one character per byte, so that no byte is lost. */
  async allInput(files: readonly string[]): Promise<{ text: string; status: number }> {
    const parts: string[] = [];
    const status = await this.eachInput(files, async (source) => {
      parts.push(bytesToText(await source.readAll()));
    });
    return { text: parts.join(""), status };
  }

  /**
   * Reads short options: `plain` are letters without a value, `valued` letters with one. Everything after `--` is an
   * operand. Any other option is unsupported.
   */
  options(plain: string, valued = ""): Options {
    const flags = new Set<string>();
    const values = new Map<string, string>();
    const rest = [...this.args];
    const operands: string[] = [];
    for (let arg = rest.shift(); arg !== undefined; arg = rest.shift()) {
      if (arg === "--") {
        operands.push(...rest);
        break;
      }
      if (!arg.startsWith("-") || arg === "-") {
        operands.push(arg);
        continue;
      }
      for (let at = 1; at < arg.length; at++) {
        const letter = arg.charAt(at);
        if (valued.includes(letter)) {
          const value = arg.slice(at + 1) || rest.shift();
          if (value === undefined) throw new UsageError(`option requires an argument -- '${letter}'`);
          values.set(letter, value);
          break;
        }
        if (!plain.includes(letter)) throw new Unsupported(`${this.name} ${arg}`);
        flags.add(letter);
      }
    }
    return { flags, values, operands };
  }
}

export interface Options {
  readonly flags: ReadonlySet<string>;
  readonly values: ReadonlyMap<string, string>;
  readonly operands: readonly string[];
}

export function bytesToText(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1");
}

export function textToBytes(text: string): Uint8Array {
  return Buffer.from(text, "latin1");
}

/** Lines without their newlines. A last line without one counts. */
export function linesOf(text: string): string[] {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

/** A count such as `-n 5`; anything else is a usage error. */
export function countOf(text: string): number {
  if (!/^[0-9]{1,9}$/.test(text)) throw new UsageError(`invalid number: '${text}'`);
  return Number(text);
}
