/** Turns a connection into one to a port inside the sandbox, for previews. The server may listen on either loopback. */

import { connect, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { SandlotError, TUNNEL_PROTOCOL } from "@sandlot/contract";
import { timer } from "../clock.ts";

const LOOPBACKS = ["127.0.0.1", "::1"];
/** A loopback responds at once, or the listener's queue is full. */
const CONNECT_TIMEOUT_MS = 5_000;
const RETRY_AFTER_MS = 500;
const ACCEPTED = `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${TUNNEL_PROTOCOL}\r\n\r\n`;

/** Connects first, so that a failure is still a response; then bytes go both ways until both sides have ended. */
export async function openTunnel(
  port: number,
  { socket, head }: { readonly socket: Duplex; readonly head: Buffer },
  sandboxId: string,
  noteTraffic: () => void,
): Promise<void> {
  const inner = await connectInside(port, sandboxId);
  if (socket.destroyed) return void inner.destroy();
  noteTraffic();
  socket.write(ACCEPTED);
  if (head.length > 0) inner.write(head);
  for (const [from, to] of [
    [socket, inner],
    [inner, socket],
  ] as const) {
    from.on("data", noteTraffic);
    // A failure of one side destroys the other. `pipe` passes on an orderly end, after everything before it.
    from.on("error", () => to.destroy());
    from.on("close", () => {
      if (!from.readableEnded) to.destroy();
    });
    from.pipe(to);
  }
}

/** The same for the daemon's own servers. */
export async function acceptTunnel(
  { socket, head }: { readonly socket: Duplex; readonly head: Buffer },
  serve: (socket: Duplex) => void,
): Promise<void> {
  socket.write(ACCEPTED);
  if (head.length > 0) socket.unshift(head);
  serve(socket);
}

async function connectInside(port: number, sandboxId: string): Promise<Socket> {
  let problem = "";
  for (const host of LOOPBACKS) {
    try {
      return await connectTo(host, port);
    } catch (error) {
      problem ||= (error as Error).message;
    }
  }
  const refusal = `nothing accepts connections on port ${port} (${problem})`;
  throw new SandlotError("sandbox_unreachable", { sandboxId, problem: refusal, retryAfterMs: RETRY_AFTER_MS });
}

function connectTo(host: string, port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, allowHalfOpen: true, noDelay: true });
    const late = timer(CONNECT_TIMEOUT_MS, () => socket.destroy(new Error("no answer")));
    socket.once("connect", () => {
      late.cancel();
      socket.off("error", reject);
      resolve(socket);
    });
    socket.once("error", (error) => {
      late.cancel();
      reject(error);
    });
  });
}
