/**
 * The hostile daemon: a bare server that reads requests as HTTP and responds wrongly to one kind of them.
 *
 * The credentials of every call select the case, so that many cases run against one double at once and each can be
 * repeated: `{seed}.{how}.{target}`. How is `h` (honestly), `r` (drawn from the seed), or `t{n}` (the honest response
 * up to its nth byte). The target is a path; all others get honest responses, so that a case gets as far as its target.
 */

import { createServer, type Server, type Socket } from "node:net";
import { Chance } from "../../fuzz/generate.ts";
import { honestOf } from "./honest.ts";
import { type Asked, honestly, type Step, truncated } from "./steps.ts";
import { spoilt } from "./tricks.ts";

export interface DoubleEvents {
  /** For callers with their own credentials: a command `plan {seed}.{how}.{target}` selects the next case. */
  readonly plan?: { current: string };
  /** How many bytes of a spoilt response the other side took before the connection ended. */
  readonly onTaken: (token: string, bytes: number) => void;
}

const PLANNED = {
  ...{ execId: "plan", status: "completed", exitCode: 0, signal: null, stdout: "", stderr: "" },
  ...{ stdoutDroppedBytes: 0, stderrDroppedBytes: 0, durationMs: 0 },
};
const DRIP_MS = 2;
const PIECE_BYTES = 64 * 1024;
/** A longer request is not one of ours. */
const HEAD_MAX_BYTES = 64 * 1024;

export function createDouble(events: DoubleEvents): Server {
  const server = createServer((socket) => new Connection(socket, events));
  server.on("error", () => {});
  return server;
}

class Connection {
  readonly #socket: Socket;
  readonly #events: DoubleEvents;
  #held: Buffer = Buffer.alloc(0);
  #bodyLeft = 0;
  #takenBytes = 0;
  #body = "";
  #isBusy = false;
  /** In a tunnel to a port: its token. */
  #tunnelOf: string | null = null;
  #hasSwitched = false;

  constructor(socket: Socket, events: DoubleEvents) {
    this.#socket = socket;
    this.#events = events;
    socket.setNoDelay(true);
    socket.setMaxListeners(0);
    socket.on("error", () => {});
    socket.on("data", (piece) => {
      if (this.#hasSwitched) return;
      this.#held = Buffer.concat([this.#held, piece]);
      this.#next();
    });
  }

  #next(): void {
    const skipped = Math.min(this.#bodyLeft, this.#held.length);
    this.#planned(this.#held.toString("latin1", 0, skipped));
    this.#held = this.#held.subarray(skipped);
    this.#bodyLeft -= skipped;
    if (this.#isBusy || this.#bodyLeft > 0 || this.#held.length === 0) return;
    const end = this.#held.indexOf("\r\n\r\n");
    if (end < 0) {
      if (this.#held.length > HEAD_MAX_BYTES) this.#socket.destroy();
      return;
    }
    const head = this.#held.toString("latin1", 0, end);
    this.#held = this.#held.subarray(end + 4);
    this.#bodyLeft = Number(header(head, "content-length") ?? 0);
    if (this.#events.plan !== undefined && / \/sandlot\/exec[ ?]/.test(head) && this.#bodyLeft > 0) {
      // Its body shows whether it is a plan.
      const body = this.#held.toString("latin1", 0, this.#bodyLeft);
      if (body.includes('"command":"plan ')) {
        this.#next();
        return;
      }
    }
    this.#isBusy = true;
    void this.#answer(head).finally(() => {
      this.#isBusy = false;
      if (!this.#socket.destroyed) this.#next();
    });
  }

  #planned(piece: string): void {
    const { plan } = this.#events;
    if (plan === undefined || piece === "") return;
    this.#body = (this.#body + piece).slice(-4_096);
    const found = /"command":"plan ([^"]*)"/.exec(this.#body)?.[1];
    if (found === undefined) return;
    plan.current = found;
    this.#body = "";
    this.#socket.write("HTTP/1.1 200 OK\r\nconnection: close\r\n");
    const body = JSON.stringify({ ...PLANNED });
    this.#socket.end(`content-length: ${body.length}\r\n\r\n${body}`);
  }

  async #answer(head: string): Promise<void> {
    const [, url = "/"] = head.split(" ", 2);
    const [path = "/"] = url.split("?");
    const isApp = this.#tunnelOf !== null;
    const wantsSwitch = header(head, "upgrade") !== null;
    const name = isApp ? (wantsSwitch ? "app:websocket" : "app:http") : path;
    const token =
      this.#tunnelOf ??
      this.#events.plan?.current ??
      header(head, "x-sandlot-token") ??
      header(head, "x-aio-api-key") ??
      "";
    if (token === "" && path.startsWith("/v1/"))
      return this.#run([{ do: "write", bytes: Buffer.from("HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n") }]);
    const [seed = "0", how = "h", target = ""] = token.split(".", 3);
    const honest = honestOf(name);
    const asked: Asked = {
      key: header(head, "sec-websocket-key") ?? undefined,
      generation: generationOf(head),
    };
    const isTarget = target === name && how !== "h";
    const switches =
      honest.kind === "tunnel" || honest.kind === "terminal" || honest.kind === "upload" || honest.kind === "switch";
    if (switches && honest.kind !== "tunnel") this.#hasSwitched = true;
    if (!isTarget) {
      await this.#run(honestly(honest, asked).filter((step) => !switches || step.do !== "stall"));
      if (honest.kind === "tunnel") this.#tunnelOf = token;
      return;
    }
    const before = this.#takenBytes;
    this.#socket.once("close", () => this.#events.onTaken(token, this.#takenBytes - before));
    const steps = how.startsWith("t")
      ? truncated(honest, asked, Number(how.slice(1)), (["end", "reset", "stall"] as const)[Number(seed) % 3] ?? "end")
      : spoilt(new Chance(Number(seed)), honest, asked);
    if (honest.kind === "tunnel") this.#hasSwitched = true;
    await this.#run(steps);
  }

  async #run(steps: readonly Step[]): Promise<void> {
    for (const step of steps) {
      if (this.#socket.destroyed) return;
      switch (step.do) {
        case "write":
          await this.#write(step.bytes);
          break;
        case "flood": {
          const block = repeated(step.bytes);
          for (let sent = 0; sent < step.maxBytes && !this.#socket.destroyed; sent += block.length)
            await this.#write(block);
          break;
        }
        case "drip":
          for (const byte of step.bytes) {
            await this.#write(Buffer.from([byte]));
            await new Promise((resolve) => setTimeout(resolve, DRIP_MS));
          }
          break;
        case "stall":
          await this.#closed();
          break;
        case "end":
          this.#socket.end();
          await this.#closed();
          break;
        case "reset":
          // A unix socket has no reset, and Node has none for TLS.
          if (this.#socket.remoteAddress === undefined || "encrypted" in this.#socket) this.#socket.destroy();
          else this.#socket.resetAndDestroy();
          break;
      }
    }
  }

  async #write(bytes: Buffer): Promise<void> {
    for (let at = 0; at < bytes.length && !this.#socket.destroyed; at += PIECE_BYTES) {
      const piece = bytes.subarray(at, at + PIECE_BYTES);
      await new Promise<void>((resolve) => {
        this.#socket.once("close", resolve);
        this.#socket.write(piece, (error) => {
          if (error == null) this.#takenBytes += piece.length;
          this.#socket.off("close", resolve);
          resolve();
        });
      });
    }
  }

  #closed(): Promise<void> {
    if (this.#socket.destroyed) return Promise.resolve();
    return new Promise((resolve) => void this.#socket.once("close", () => resolve()));
  }
}

function generationOf(head: string): number {
  const path = head.split(" ", 2)[1] ?? "";
  // A rebind responds with the next generation.
  const generation = Number(header(head, "x-sandlot-generation") ?? 1);
  return path.startsWith("/sandlot/rebind") ? generation + 1 : generation;
}

function repeated(bytes: Buffer): Buffer {
  return Buffer.concat(
    Array.from({ length: Math.max(1, Math.floor(16_384 / Math.max(1, bytes.length))) }, () => bytes),
  );
}

function header(head: string, name: string): string | null {
  return new RegExp(`\\r\\n${name}[ \\t]*:[ \\t]*([^\\r\\n]*)`, "i").exec(head)?.[1] ?? null;
}
