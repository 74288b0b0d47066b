/** A connection to a port inside, through a gateway's listener for previews. For Node only. */

import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { type PortLink, SandlotError, TUNNEL_PROTOCOL } from "@sandlot/contract";
import { later } from "./clock.ts";
import { errorOf, unreachable } from "./errors.ts";
import { builtIn } from "./node-calls.ts";

/** Includes waking a sandbox. */
const OPENING_MS = 60_000;
/** An error is small; the rest is not read. */
const REFUSAL_MAX_BYTES = 65_536;

export function openTunnel({ direct }: PortLink, signal?: AbortSignal): Promise<Duplex> {
  const module = builtIn(direct.url.startsWith("https:") ? "node:https" : "node:http");
  if (module === null)
    throw new SandlotError("capability_missing", {
      backend: "browser",
      capability: "raw connections",
      neededBy: "lease.connect",
    });
  signal?.throwIfAborted();
  return new Promise((resolve, reject) => {
    const headers = { ...direct.headers, connection: "Upgrade", upgrade: TUNNEL_PROTOCOL };
    const outgoing = module.request(direct.url, { headers, agent: false, ...(signal === undefined ? {} : { signal }) });
    const late = later(OPENING_MS, () =>
      outgoing.destroy(new SandlotError("wait_timeout", { waitedFor: "the connection", timeoutMs: OPENING_MS })),
    );
    outgoing.once("close", late);
    outgoing.on("error", (error) => {
      if (signal?.aborted === true) reject(signal.reason);
      else reject(error instanceof SandlotError ? error : unreachable(direct.url, error));
    });
    outgoing.once("upgrade", (_response, socket, head) => {
      late();
      // The caller adds its own listener; an error before that is harmless.
      socket.on("error", () => {});
      if (head.length > 0) socket.unshift(head);
      resolve(socket);
    });
    outgoing.once("response", (response) => {
      refusalOf(response)
        .then(errorOf)
        .then(reject, reject)
        .finally(() => outgoing.destroy());
    });
    outgoing.end();
  });
}

async function refusalOf(response: IncomingMessage): Promise<Pick<Response, "status" | "text">> {
  let text = "";
  response.setEncoding("utf8");
  for await (const part of response) {
    text += part;
    if (text.length > REFUSAL_MAX_BYTES) break;
  }
  return { status: response.statusCode ?? 0, text: () => Promise.resolve(text) };
}
