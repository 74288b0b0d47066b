/**
 * The protocol between a fleet and the egress process: lines of JSON over a socket that only the host can reach.
 *
 * The process greets first. Events go to all connections. No line holds the value of a secret.
 */

import type { Socket } from "node:net";
import type { ProcessIdentity } from "../../../world/world.ts";
import type { EgressStats } from "../proxy/egress-proxy.ts";
import type { Refusal } from "../rules/decide.ts";

/** From the process. */
export type EgressNotice =
  | {
      readonly type: "hello";
      readonly sandboxId: string;
      readonly settingsHash: string;
      readonly identity: ProcessIdentity;
      /** With the way `namespace`, a process in the sandbox's network namespace. */
      readonly namespacePid: number | null;
    }
  | { readonly type: "refused"; readonly refusal: Refusal; readonly untold: number }
  /** An unexpected failure that ended nothing. */
  | { readonly type: "fault"; readonly problem: string }
  | { readonly type: "stats"; readonly stats: EgressStats };

/** To the process. `watch`: end when this process has ended. */
export type EgressCommand =
  | { readonly type: "stats" }
  | { readonly type: "stop" }
  | { readonly type: "watch"; readonly identity: ProcessIdentity };

const LINE_MAX_BYTES = 64 * 1_024;
/** A paused or stuck listener is disconnected; it joins again when it can. */
const UNREAD_MAX_BYTES = 1_024 * 1_024;

export function sendLine(socket: Socket, message: EgressNotice | EgressCommand): void {
  if (socket.writableLength > UNREAD_MAX_BYTES) socket.destroy();
  else if (socket.writable) socket.write(`${JSON.stringify(message)}\n`);
}

/** Both ends are the same version of this package, so a line that is no JSON ends the connection. */
export function readLines<Message>(socket: Socket, onMessage: (message: Message) => void): void {
  let text = "";
  socket.setEncoding("utf8");
  socket.on("data", (chunk: string) => {
    text += chunk;
    const lines = text.split("\n");
    text = lines.pop() ?? "";
    if (text.length > LINE_MAX_BYTES) socket.destroy();
    for (const line of lines) {
      const message = parse<Message>(line);
      if (message === undefined) socket.destroy();
      else onMessage(message);
    }
  });
}

function parse<Message>(line: string): Message | undefined {
  try {
    return JSON.parse(line) as Message;
  } catch {
    return undefined;
  }
}
