/**
 * Calls to the process that uses the workspaces volume (`volume-main.ts`).
 *
 * Invariants
 * - This process makes no call to the volume itself.
 * - Every call ends: with its result, with its error, or with `engine_unavailable` at its deadline. Time that the caller
 *   takes to supply content does not count.
 * - A process that has said nothing for a whole deadline is killed. The next call starts another one, as soon as the
 *   killed one is gone: there is never more than one, however long a server is silent.
 */

import { type ChildProcess, fork } from "node:child_process";
import { SandlotError } from "@sandlot/contract";
import { FROM_SOURCE, programFile } from "../../../../package-files.ts";
import { giveBack } from "../../../../world/given-bytes.ts";
import type { Timer, World } from "../../../../world/world.ts";
import { type FromVolume, receivedError, type ToVolume } from "./volume-messages.ts";
import type { Content, VolumeService } from "./volume-service.ts";

export interface VolumeProcessOptions {
  /** The account that sandboxes have; only a process of root can use another than its own. */
  readonly account?: { readonly uid: number; readonly gid: number };
  /** The fleet's folder on the volume, as this machine mounts it. */
  readonly root: string;
  readonly world: World;
  /** How long a call may take that only moves or reads a little. */
  readonly deadlineMs?: number;
  readonly onProblem?: (problem: string) => void;
}

type Methods = Omit<VolumeService, "constructor">;
type ResultOf<Name extends keyof Methods> = Awaited<ReturnType<Methods[Name]>>;
/** A method's parameters without the content, which does not cross the boundary as a value. */
type ArgsOf<Name extends keyof Methods> = WithoutContent<Parameters<Methods[Name]>>;
type WithoutContent<Args extends readonly unknown[]> = Args extends readonly [...infer Before, Content] ? Before : Args;

export interface CallOptions {
  readonly deadlineMs?: number;
  readonly content?: Content;
}

interface Pending {
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
  readonly content: Content | null;
  readonly deadlineMs: number;
  /** Since the first pull: unread content stays whole. */
  reading: AsyncIterator<Uint8Array> | null;
  /** Why the content ended early. The caller gets this error itself. */
  broken: unknown;
  timer: Timer;
}

const DEADLINE_MS = 10_000;
const RETRY_AFTER_MS = 2_000;
const STDERR_MAX = 2_000;
/** Enough for many calls to a server at once. */
const THREADS = "16";

export class VolumeProcess {
  readonly #options: VolumeProcessOptions;
  readonly #deadlineMs: number;
  readonly #pending = new Map<number, Pending>();
  #child: ChildProcess | null = null;
  /** Killed, and not gone yet. */
  #ending: ChildProcess | null = null;
  #heardAt = 0;
  #lastId = 0;
  #isClosed = false;

  constructor(options: VolumeProcessOptions) {
    this.#options = options;
    this.#deadlineMs = options.deadlineMs ?? DEADLINE_MS;
  }

  /** For tests. */
  get pid(): number | undefined {
    return this.#child?.pid;
  }

  call<Name extends keyof Methods>(
    method: Name,
    args: ArgsOf<Name>,
    { deadlineMs = this.#deadlineMs, content }: CallOptions = {},
  ): Promise<ResultOf<Name>> {
    return new Promise<unknown>((resolve, reject) => {
      const child = this.#started();
      const id = ++this.#lastId;
      const timer = this.#timer(id, deadlineMs);
      this.#pending.set(id, {
        ...{ resolve, reject, deadlineMs, timer },
        ...{ content: content ?? null, reading: null, broken: undefined },
      });
      child.channel?.ref();
      this.#send(child, { id, method, args });
    }) as Promise<ResultOf<Name>>;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const child = this.#child;
    this.#end(this.#unavailable("the fleet was closed"));
    if (child === null || child.exitCode !== null) return;
    // Not longer: a thread that is stuck in the kernel keeps a killed process.
    const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
    await Promise.race([gone, new Promise<void>((resolve) => this.#options.world.timer(1_000, resolve))]);
  }

  #started(): ChildProcess {
    if (this.#isClosed) throw this.#unavailable("the fleet was closed");
    if (this.#child !== null) return this.#child;
    if (this.#ending !== null)
      throw this.#unavailable("it does not respond, and a killed process still waits for it in the kernel");
    const { PATH = "", LANG = "", TZ = "" } = process.env;
    const child = fork(programFile("backends/kubernetes/workspaces/volume/volume-main"), [this.#options.root], {
      execArgv: FROM_SOURCE ? ["--conditions=sandlot-source"] : [],
      env: { PATH, LANG, TZ, UV_THREADPOOL_SIZE: THREADS },
      serialization: "advanced",
      stdio: ["ignore", "ignore", "pipe", "ipc"],
      cwd: "/",
      ...(process.getuid?.() === 0 && this.#options.account),
    });
    this.#child = child;
    this.#heardAt = this.#options.world.monotonicMs();
    let said = "";
    child.stderr?.on("data", (chunk: Buffer) => {
      said = (said + chunk.toString()).slice(-STDERR_MAX);
    });
    child.on("message", (message: FromVolume) => this.#heard(message));
    const gone = (why: string) => {
      if (this.#ending === child) this.#ending = null;
      if (this.#child === child) this.#end(this.#unavailable(why), { isGone: true });
    };
    child.on("error", (error) => gone(`its process failed: ${error.message}`));
    child.on("exit", (code, signal) => gone(`its process ended with ${signal ?? code}: ${said.trim().slice(-500)}`));
    child.unref();
    child.channel?.unref();
    return child;
  }

  #heard(message: FromVolume): void {
    this.#heardAt = this.#options.world.monotonicMs();
    if ("ready" in message) return;
    if ("problem" in message) {
      this.#options.onProblem?.(message.problem);
      return;
    }
    const pending = this.#pending.get(message.id);
    if (pending === undefined) return;
    pending.timer.cancel();
    if ("pull" in message) {
      void this.#supply(message.id, pending);
      return;
    }
    this.#settle(message.id);
    if ("error" in message) pending.reject(pending.broken ?? receivedError(message.error));
    else pending.resolve(message.result);
  }

  /** Sends the next piece of a call's content. */
  async #supply(id: number, pending: Pending): Promise<void> {
    let piece: Uint8Array | null = null;
    try {
      pending.reading ??= pending.content?.[Symbol.asyncIterator]() ?? null;
      const next = await pending.reading?.next();
      piece = next === undefined || next.done === true ? null : next.value;
    } catch (error) {
      pending.broken = error;
    }
    if (!this.#pending.has(id) || this.#child === null) return;
    pending.timer = this.#timer(id, pending.deadlineMs);
    if (pending.broken === undefined) this.#send(this.#child, { id, piece });
    else this.#send(this.#child, { id, broken: "the source of the content has failed" });
    // The message has a copy.
    if (piece !== null) giveBack(piece);
  }

  #timer(id: number, deadlineMs: number): Timer {
    return this.#options.world.timer(deadlineMs, () => this.#late(id, deadlineMs));
  }

  #late(id: number, deadlineMs: number): void {
    const late = this.#unavailable(`it has not responded for ${deadlineMs} ms`);
    this.#pending.get(id)?.reject(late);
    this.#settle(id);
    if (this.#child !== null) this.#endIfSilent(this.#child, late);
  }

  /** A process that answers other calls is only busy. One that stays silent is stuck, and long calls are stuck with it. */
  #endIfSilent(child: ChildProcess, error: SandlotError): void {
    if (this.#child !== child) return;
    const { world } = this.#options;
    const heardAt = this.#heardAt;
    const leftMs = heardAt + this.#deadlineMs - world.monotonicMs();
    if (leftMs <= 0) {
      this.#end(error);
      return;
    }
    const check = () => this.#heardAt === heardAt && this.#endIfSilent(child, error);
    world.timer(Math.ceil(leftMs), check, { background: true });
  }

  #settle(id: number): void {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    pending?.timer.cancel();
    // The source may hold a request's connection.
    pending?.reading?.return?.()?.catch(() => undefined);
    if (this.#pending.size === 0) this.#child?.channel?.unref();
  }

  #end(error: SandlotError, { isGone = false } = {}): void {
    const child = this.#child;
    this.#child = null;
    for (const [id, { reject }] of [...this.#pending]) {
      reject(error);
      this.#settle(id);
    }
    if (child === null || isGone) return;
    this.#ending = child;
    child.kill("SIGKILL");
  }

  #send(child: ChildProcess, message: ToVolume): void {
    // A failure is followed by the exit of the process, which ends the call.
    child.send(message, () => {});
  }

  #unavailable(problem: string): SandlotError {
    const tried = [this.#options.root];
    return new SandlotError("engine_unavailable", {
      engine: "workspaces",
      problem,
      tried,
      retryAfterMs: RETRY_AFTER_MS,
    });
  }
}
