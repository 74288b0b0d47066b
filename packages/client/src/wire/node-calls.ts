/**
 * Short calls from Node: a JSON question, an answer that is taken whole. They go over `node:http` and not over `fetch`:
 * `fetch` makes a stream of every body, which costs a short command a tenth of its time, and gives up on an answer after
 * five minutes, which a command may well take. Streams, files and forms still go over `fetch`, and so does everything in
 * browsers, where something stands in for Node's own `fetch` or carries it, and where a `fetch` was given.
 *
 * Invariants
 * - Nothing of Node is imported: it is asked for where there is one, so that a bundle for browsers needs nothing of it.
 * - It rejects when there is no whole answer, whatever the reason. Whether to ask again is not decided here.
 */

import type { request as httpRequest, IncomingMessage } from "node:http";

/** What a short call needs of an answer. */
export interface Answer {
  readonly ok: boolean;
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  text(): Promise<string>;
}

interface ShortCall {
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly signal?: AbortSignal;
}

export type AskShortly = (address: string, call: ShortCall) => Promise<Answer>;

/** Node's own, unless somebody was faster. */
const fetchOfNode = globalThis.fetch;
/** Where Node's `fetch` finds what carries its requests. */
const CARRIER = Symbol.for("undici.globalDispatcher.1");

/** `null` where short calls go over `fetch` like all others. */
export function nodeCalls(url: string): AskShortly | null {
  if (globalThis.fetch !== fetchOfNode || hasCarrierOfOthers()) return null;
  if (url.startsWith("http:")) return asking(builtIn("node:http")?.request ?? null);
  if (url.startsWith("https:")) return asking(builtIn("node:https")?.request ?? null);
  return null;
}

/** A proxy or an interceptor that was set for every `fetch` of this process is meant for our requests, too. */
function hasCarrierOfOthers(): boolean {
  const carrier = (globalThis as { [CARRIER]?: object })[CARRIER];
  return carrier !== undefined && carrier.constructor.name !== "Agent";
}

function builtIn<Name extends "node:http" | "node:https">(name: Name) {
  const { process } = globalThis as { process?: Partial<NodeJS.Process> };
  // Others that call themselves Node have a fast `fetch`, and their own idea of this module.
  if (process?.versions?.node === undefined || "bun" in process.versions || "deno" in process.versions) return null;
  return process.getBuiltinModule?.(name) ?? null;
}

function asking(request: typeof httpRequest | null): AskShortly | null {
  if (request === null) return null;
  return (address, { method, headers, body, signal }) =>
    new Promise((resolve, reject) => {
      const length = body === undefined ? null : { "content-length": Buffer.byteLength(body) };
      const outgoing = request(address, {
        method,
        headers: length === null ? headers : { ...headers, ...length },
        ...(signal === undefined ? {} : { signal }),
      });
      outgoing.once("error", reject);
      outgoing.once("response", (response) => taken(response).then(resolve, reject));
      outgoing.end(body);
    });
}

function taken(response: IncomingMessage): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = [];
    response.on("data", (part: Buffer) => parts.push(part));
    response.once("error", reject);
    response.once("end", () => {
      if (!response.complete) return reject(new Error("the answer was cut off"));
      const { statusCode: status = 0, headers } = response;
      const text = Buffer.concat(parts).toString("utf8");
      resolve({
        ok: status >= 200 && status < 300,
        status,
        headers: { get: (name) => headers[name]?.toString() ?? null },
        text: () => Promise.resolve(text),
      });
    });
  });
}
