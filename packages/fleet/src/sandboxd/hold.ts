/**
 * The one connection that a holder keeps: its close reports a death without polling.
 *
 * A daemon sends one greeting, a line of JSON, and nothing more. Its HTTP server may split that line into any pieces
 * and chunks.
 */

import { checkProtocol, holdGreetingSchema } from "@sandlot/contract";
import { readShortJson } from "../untrusted/json.ts";
import { STREAM_LIMITS } from "../untrusted/limits.ts";
import { ConnectionLost, type OpenStream } from "./connections.ts";
import { badResponse } from "./replies.ts";
import type { Wire } from "./wire.ts";

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

/** The longest line between two chunks: a size and extensions. */
const CHUNK_LINE_MAX_BYTES = 256;
const CHUNK_SIZE_PATTERN = /^([0-9a-f]{1,8})[ \t]*(?:;.*)?$/i;

/** The content of a body in chunks (RFC 9112, 7.1), one character for each byte. */
class Chunks {
  /** Bytes left in this chunk. */
  #left = 0;
  #line = "";
  #isBehindContent = false;
  /** The last chunk has arrived, or an invalid one. */
  hasEnded = false;

  take(piece: Buffer): string {
    let content = "";
    for (let at = 0; at < piece.length && !this.hasEnded; ) {
      if (this.#left > 0) {
        const part = piece.toString("latin1", at, Math.min(at + this.#left, piece.length));
        content += part;
        at += part.length;
        this.#left -= part.length;
        this.#isBehindContent = this.#left === 0;
        continue;
      }
      const end = piece.indexOf("\n", at, "latin1");
      this.#line += piece.toString("latin1", at, end < 0 ? piece.length : end);
      if (this.#line.length > CHUNK_LINE_MAX_BYTES) this.hasEnded = true;
      if (end < 0) break;
      at = end + 1;
      this.#takeLine(this.#line.replace(/\r$/, ""));
      this.#line = "";
    }
    return content;
  }

  #takeLine(line: string): void {
    if (this.#isBehindContent) {
      this.#isBehindContent = false;
      this.hasEnded = line !== "";
      return;
    }
    this.#left = Number.parseInt(CHUNK_SIZE_PATTERN.exec(line)?.[1] ?? "0", 16);
    this.hasEnded = this.#left === 0;
  }
}
