/**
 * A held daemon: the one connection that a holder keeps, and calls that turn a broken connection into an error of the
 * contract.
 *
 * The close of the held connection reports a death without polling. A daemon sends one greeting on it, a line of JSON, and
 * nothing more. Its HTTP server may split that line into any pieces and chunks.
 *
 * Invariants
 * - A broken connection is `sandbox_lost` when the held one broke too, the daemon's socket has no listener, and that is
 *   certain to be the end: the engine says so, or, without an engine, the socket was on this machine. Otherwise it is
 *   `sandbox_unreachable`. A broken connection alone proves nothing: the daemon may have been killed and started again.
 * - When another run of the daemon responds, it was restarted: its commands are gone, the sandbox is not. Unsent
 *   requests go to the new run.
 * - An attachment whose held connection has ended stays ended; a caller that still wants the sandbox attaches again.
 *   Calls in between use their own connections, so that they do not end with it.
 */

import { checkProtocol, holdGreetingSchema, renewReplySchema, SandlotError } from "@sandlot/contract";
import type { z } from "zod";
import { readShortJson } from "../untrusted/json.ts";
import { type DaemonPath, STREAM_LIMITS } from "../untrusted/limits.ts";
import { sleep } from "../world/waiting.ts";
import type { World } from "../world/world.ts";
import { ConnectionLost, ConnectionPool } from "./connection-pool.ts";
import { badResponse } from "./replies.ts";
import { Chunks, type OpenStream } from "./response-parser.ts";
import { Wire } from "./wire.ts";

export interface Hold {
  /** The daemon's pid, in its own namespace. */
  readonly daemonPid: number;
  /** The id of the daemon's run. */
  readonly run: string;
  /** Resolves when the connection ended, for any reason. */
  readonly closed: Promise<void>;
  /** `here`: this process has closed it. `there`: the daemon has, or the network between. */
  ended(): "no" | "here" | "there";
  close(): void;
}

const GREETING_MAX_BYTES = 4_096;
/** A daemon sends nothing after its greeting. More than this ends the connection, before reading it costs anything. */
const CHATTER_MAX_BYTES = 64 * 1024;

export async function openHold(wire: Wire, signal?: AbortSignal): Promise<Hold> {
  const call = { method: "GET", path: "/sandlot/hold", repeatable: true, ...(signal && { signal }) } as const;
  return holdBy(wire, await wire.openStream(call), wire.target.generation, signal);
}

/**
 * Turns an open stream into a hold: the daemon greets, and the stream does not end. A failure before the greeting
 * closes it.
 */
export async function holdBy(wire: Wire, stream: OpenStream, generation: number, signal?: AbortSignal): Promise<Hold> {
  const { socket } = stream;
  let ended: ReturnType<Hold["ended"]> = "no";
  const closed = new Promise<void>((resolve) => {
    socket.once("close", () => {
      if (ended === "no") ended = "there";
      resolve();
    });
  });
  socket.on("error", () => {});
  const timer = wire.timer(STREAM_LIMITS.unitMs, () => socket.destroy());
  const greeting = await firstLine(stream, signal).finally(() => timer.cancel());
  const parsed = holdGreetingSchema.safeParse(greeting);
  if (!parsed.success || parsed.data.generation !== generation) {
    socket.destroy();
    throw badResponse("its daemon greeted with something else than its generation");
  }
  try {
    checkProtocol("daemon", parsed.data.protocol);
  } catch (error) {
    socket.destroy();
    throw error;
  }
  // A forgotten lease must not keep a script alive; a caller that waits for the sandbox has its own connection.
  socket.unref();
  const close = (): void => {
    if (ended === "no") ended = "here";
    socket.destroy();
  };
  return { daemonPid: parsed.data.pid, run: parsed.data.run, closed, ended: () => ended, close };
}

/** Reads on after the line, so that the end of the stream shows. */
function firstLine({ socket, first, header }: OpenStream, signal: AbortSignal | undefined): Promise<unknown> {
  const chunks = header("transfer-encoding")?.toLowerCase() === "chunked" ? new Chunks() : null;
  return new Promise((resolve, reject) => {
    let text = "";
    let hasGreeted = false;
    let chatterBytes = 0;
    const onData = (piece: Buffer): void => {
      if (hasGreeted) chatterBytes += piece.length;
      if (chatterBytes > CHATTER_MAX_BYTES) return void socket.destroy();
      const part = chunks === null ? piece.toString("latin1") : chunks.take(piece);
      if (!hasGreeted) text += part;
      if (chunks?.hasEnded === true) socket.destroy();
      if (hasGreeted || (!text.includes("\n") && text.length < GREETING_MAX_BYTES)) return;
      hasGreeted = true;
      stopWaiting();
      resolve(readShortJson(Buffer.from(text.split("\n", 1)[0] ?? "", "latin1")));
    };
    const onClose = (): void => {
      stopWaiting();
      reject(new ConnectionLost("the daemon ended before it greeted"));
    };
    const onAbort = (): void => {
      socket.destroy();
      reject(signal?.reason);
    };
    const stopWaiting = (): void => {
      socket.off("close", onClose);
      signal?.removeEventListener("abort", onAbort);
    };
    socket.on("close", onClose);
    signal?.addEventListener("abort", onAbort, { once: true });
    if (signal?.aborted === true) onAbort();
    onData(first);
    socket.on("data", onData);
    socket.resume();
  });
}

/** After a broken request, how long the held connection may take to show that the daemon is gone. */
const DEATH_SHOWS_MS = 200;
/** A daemon that is being restarted responds within this time, or never. */
const RESTART_SHOWS_MS = 5_000;
const ASK_AGAIN_AFTER_MS = 20;
/** The errors of connecting to a socket without a listener, or to a missing path. */
const NO_LISTENER: ReadonlySet<unknown> = new Set(["ECONNREFUSED", "ENOENT"]);
/** The errors of connecting to an address that no host has any more, which an engine that is asked explains. */
const NO_HOST: ReadonlySet<unknown> = new Set(["EHOSTUNREACH", "ENETUNREACH", "ETIMEDOUT"]);
const RETRY_AFTER_MS = 500;

/** Why a call failed, and whether the daemon was restarted meanwhile. */
export interface Failure {
  readonly error: SandlotError;
  readonly restarted: boolean;
}

export class Calls {
  readonly wire: Wire;
  readonly world: World;
  readonly #hold: Hold;
  #afterRestart: Wire | null = null;

  constructor(wire: Wire, hold: Hold, world: World) {
    this.wire = wire;
    this.world = world;
    this.#hold = hold;
  }

  get<T>(schema: z.ZodType<T>, path: DaemonPath, signal?: AbortSignal): Promise<T> {
    return this.attempt((wire) => wire.ask(schema, { method: "GET", path, ...(signal && { signal }) }), signal);
  }

  post<T>(schema: z.ZodType<T>, path: DaemonPath, fields: object, signal?: AbortSignal, waitsMs?: number): Promise<T> {
    return this.attempt((wire) => wire.post(schema, path, fields, signal, waitsMs), signal);
  }

  async attempt<T>(work: (wire: Wire) => Promise<T>, signal?: AbortSignal): Promise<T> {
    try {
      return await this.raw(work);
    } catch (error) {
      signal?.throwIfAborted();
      throw (await this.explain(error)).error;
    }
  }

  /** Rejects with the original error; `explain` interprets it. */
  async raw<T>(work: (wire: Wire) => Promise<T>): Promise<T> {
    if (this.#hold.ended() === "no") return work(this.wire);
    const { error, restarted } = await this.#whyEnded();
    if (!restarted) throw error;
    this.#afterRestart ??= this.#unkept();
    return work(this.#afterRestart);
  }

  async explain(error: unknown): Promise<Failure> {
    if (error instanceof SandlotError) return { error, restarted: false };
    const isBroken = error instanceof ConnectionLost || (error as { code?: unknown }).code === "ECONNRESET";
    if (!isBroken) {
      const unexpected = new SandlotError("internal", { problem: String(error) }, { cause: error });
      return { error: unexpected, restarted: false };
    }
    await this.#within(DEATH_SHOWS_MS, this.#hold.closed);
    if (this.#hold.ended() !== "no") return this.#whyEnded();
    return { error: this.#unreachable((error as Error).message), restarted: false };
  }

  /** Why the held connection has ended: closed here, a rebind to another generation, a death, or the network. */
  async #whyEnded(): Promise<Failure> {
    if (this.#hold.ended() === "here")
      return { error: this.#unreachable("the attachment was closed"), restarted: false };
    const { sandboxId, generation } = this.wire.target;
    const answer = await this.#within(RESTART_SHOWS_MS, this.#ask());
    if (answer instanceof SandlotError) return { error: answer, restarted: false };
    if ((answer === "no-listener" || answer === "late") && (await this.#isTheEnd(answer)))
      return {
        error: new SandlotError("sandbox_lost", { sandboxId, generation, reason: "crashed" }),
        restarted: false,
      };
    const restarted = typeof answer === "object" && answer.run !== this.#hold.run;
    const problem = restarted ? "its daemon was restarted" : "the connection has ended";
    return { error: this.#unreachable(problem), restarted };
  }

  /** Whether a socket without a listener means that the sandbox has ended. */
  async #isTheEnd(answer: "no-listener" | "late"): Promise<boolean> {
    const { isDead, address } = this.wire.target;
    // Over a network no answer says nothing by itself: only the engine knows.
    return isDead === undefined ? "path" in address && answer === "no-listener" : isDead();
  }

  /** On new connections: a pooled one may belong to a run that has ended. */
  async #ask(): Promise<{ run: string } | SandlotError | "no-listener" | "late"> {
    const wire = this.#unkept();
    const until = this.world.monotonicMs() + RESTART_SHOWS_MS;
    while (this.world.monotonicMs() < until) {
      try {
        return await wire.post(renewReplySchema, "/sandlot/renew", {});
      } catch (error) {
        if (error instanceof SandlotError) return error;
        const code = (error as { cause?: { code?: unknown } }).cause?.code;
        if (NO_LISTENER.has(code) || (wire.target.isDead !== undefined && NO_HOST.has(code))) return "no-listener";
        await sleep(this.world, ASK_AGAIN_AFTER_MS);
      }
    }
    return "late";
  }

  #unkept(): Wire {
    return new Wire(this.wire.target, new ConnectionPool({ idleMax: 0, timer: this.world.timer }));
  }

  async #within<T>(timeoutMs: number, work: Promise<T>): Promise<T | "late"> {
    let late = () => {};
    const timer = this.world.timer(timeoutMs, () => late());
    try {
      return await Promise.race([work, new Promise<"late">((resolve) => (late = () => resolve("late")))]);
    } finally {
      timer.cancel();
    }
  }

  #unreachable(problem: string): SandlotError {
    const { sandboxId } = this.wire.target;
    return new SandlotError("sandbox_unreachable", { sandboxId, problem, retryAfterMs: RETRY_AFTER_MS });
  }
}
