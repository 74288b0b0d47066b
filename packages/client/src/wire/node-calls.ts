/**
 * Requests over `node:http` and `node:https`: JSON requests whose response is read whole, and event streams.
 *
 * `fetch` was considered, and carries everything else: files, forms, browsers, Bun, Deno, and processes that gave or replaced
 * `fetch`. It turns every body into a stream: exec through a gateway took 1.52 times as long as through the library over
 * `fetch`, and 1.32 times over `node:http` (limit 1.5). It gives up on a response after five minutes; a command may take
 * longer. Its first use in a process loads undici, 40 ms for a command line that only follows a command.
 *
 * Invariants
 * - No module of Node is imported, so a bundle for browsers needs none: `process.getBuiltinModule` provides them.
 * - A request rejects when there is no whole response. `Transport` decides what is sent again.
 */

import type { ClientRequest, request as httpRequest, IncomingMessage } from "node:http";

/** The part of a `fetch` response that the transport reads. */
export interface BufferedResponse {
  readonly ok: boolean;
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  text(): Promise<string>;
  /** Closes the connection of a response that is not read. Absent where the response was read whole. */
  discard?(): void;
}

/** A response that is read as it arrives. Ending the iteration closes the connection. */
export interface StreamedResponse extends BufferedResponse {
  readonly chunks: AsyncIterable<Uint8Array>;
}

export interface NodeRequest {
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly signal?: AbortSignal;
}

export interface NodeCalls {
  sendBuffered(address: string, request: NodeRequest): Promise<BufferedResponse>;
  sendStreamed(address: string, request: NodeRequest): Promise<StreamedResponse>;
}

/** A stream without a byte for so long is given up, as `fetch` does. Gateways send something far more often. */
const SILENCE_MAX_MS = 300_000;

/** Captured at load; a process may have replaced it before. */
const fetchOfNode = globalThis.fetch;
/** Where Node's `fetch` finds the dispatcher of its requests. */
const DISPATCHER = Symbol.for("undici.globalDispatcher.1");

/** `null` where every request goes over `fetch`. */
export function nodeCalls(url: string): NodeCalls | null {
  if (isFetchReplaced() || !/^https?:/.test(url)) return null;
  const module: Requesting | null = builtIn(url.startsWith("https:") ? "node:https" : "node:http");
  if (module === null) return null;
  return {
    sendBuffered: async (address, request) => buffered(await send(module, address, request)),
    sendStreamed: async (address, request) => streamed(await send(module, address, request, SILENCE_MAX_MS)),
  };
}

/** A proxy or an interceptor that a process has set for every `fetch` is meant for these requests, too. */
function isFetchReplaced(): boolean {
  const dispatcher = (globalThis as { [DISPATCHER]?: object })[DISPATCHER];
  return globalThis.fetch !== fetchOfNode || (dispatcher !== undefined && dispatcher.constructor.name !== "Agent");
}

interface NodeModules {
  readonly "node:http": typeof import("node:http");
  readonly "node:https": typeof import("node:https");
}

export function builtIn<Name extends keyof NodeModules>(name: Name): NodeModules[Name] | null {
  const { process } = globalThis as { process?: Partial<NodeJS.Process> };
  // Bun and Deno call themselves Node, have a fast `fetch`, and their own idea of this module.
  if (process?.versions?.node === undefined || "bun" in process.versions || "deno" in process.versions) return null;
  return process.getBuiltinModule?.(name) ?? null;
}

/** `request` is looked up with each call, so a wrapper that was installed later sees these requests. */
interface Requesting {
  readonly request: typeof httpRequest;
}

/** Resolves with the head of the response. */
function send(
  module: Requesting,
  address: string,
  { method, headers, body, signal }: NodeRequest,
  silenceMaxMs?: number,
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const outgoing = module.request(address, {
      method,
      headers: body === undefined ? headers : { ...headers, "content-length": Buffer.byteLength(body) },
      ...(signal === undefined ? {} : { signal }),
      ...(silenceMaxMs === undefined ? {} : { timeout: silenceMaxMs }),
    });
    outgoing.on("error", reject);
    outgoing.once("response", resolve);
    // Without an error before it: the response was a switch to another protocol, which no request asks for.
    outgoing.once("close", () => reject(new Error("the connection ended without an answer")));
    if (silenceMaxMs !== undefined) endWhenSilent(outgoing);
    outgoing.end(body);
  });
}

/** A slow reader is no silent gateway: bytes that wait to be read keep the request open. */
function endWhenSilent(outgoing: ClientRequest): void {
  let response: IncomingMessage | null = null;
  outgoing.once("response", (incoming) => {
    response = incoming;
  });
  outgoing.on("timeout", () => {
    if ((response?.readableLength ?? 0) === 0) outgoing.destroy(new Error("nothing came for too long"));
  });
}

function streamed(response: IncomingMessage): StreamedResponse {
  const discard = () => void response.destroy();
  return { ...headOf(response), text: async () => (await buffered(response)).text(), chunks: response, discard };
}

function buffered(response: IncomingMessage): Promise<BufferedResponse> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = [];
    response.on("data", (part: Buffer) => parts.push(part));
    response.once("error", reject);
    response.once("end", () => {
      if (!response.complete) return reject(new Error("the answer was cut off"));
      const text = Buffer.concat(parts).toString("utf8");
      resolve({ ...headOf(response), text: () => Promise.resolve(text) });
    });
  });
}

function headOf({ statusCode: status = 0, headers }: IncomingMessage): Omit<BufferedResponse, "text"> {
  const get = (name: string) => headers[name.toLowerCase()]?.toString() ?? null;
  return { ok: status >= 200 && status < 300, status, headers: { get } };
}
