/**
 * Short calls from Node: a JSON question, an answer that is taken whole. They go over connections of our own
 * (`plain-calls.ts`) or over `node:http`, and not over `fetch`: `fetch` makes a stream of every body, which costs a short
 * command a tenth of its time, and gives up on an answer after five minutes, which a command may well take. Events go over
 * `node:http`, too: the first `fetch` of a process loads all of undici, 40 ms for a command line that only follows a command.
 * Files and forms still go over `fetch`, and so does everything in browsers, where something stands in for Node's own `fetch`
 * or carries it, and where a `fetch` was given.
 *
 * Invariants
 * - Nothing of Node is imported: it is asked for where there is one, so that a bundle for browsers needs nothing of it.
 * - It rejects when there is no whole answer, whatever the reason. Only what is `repeatable` is asked again here, and only
 *   because of the connection that was chosen here.
 */

import type { ClientRequest, request as httpRequest, IncomingMessage } from "node:http";
import type { Answer as PlainAnswer } from "@sandlot/contract/short-calls";
import { type PlainCalls, plainCalls } from "./plain-calls.ts";

/** What a short call needs of an answer. */
export interface Answer {
  readonly ok: boolean;
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  text(): Promise<string>;
}

export interface ShortCall {
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly signal?: AbortSignal;
  /** It may happen twice without harm. */
  readonly repeatable: boolean;
}

export type AskShortly = (address: string, call: ShortCall) => Promise<Answer>;

/** An answer that is read as it comes. Whoever stops reading ends it. */
export interface StreamedAnswer extends Answer {
  readonly chunks: AsyncIterable<Uint8Array>;
}

export type AskStreamed = (address: string, call: Omit<ShortCall, "repeatable">) => Promise<StreamedAnswer>;

/** As `fetch` has it: a stream without a byte for so long is given up. Gateways send something far more often. */
const SILENCE_MAX_MS = 300_000;

/** Node's own, unless somebody was faster. */
const fetchOfNode = globalThis.fetch;
/** Where Node's `fetch` finds what carries its requests. */
const CARRIER = Symbol.for("undici.globalDispatcher.1");

/** `null` where short calls go over `fetch` like all others. */
export function nodeCalls(url: string): AskShortly | null {
  if (isFetchOfOthers()) return null;
  if (url.startsWith("https:")) return asking(builtIn("node:https"));
  if (!url.startsWith("http:")) return null;
  const plain = plainCallsOfNode();
  const overHttp = asking(builtIn("node:http"), (...heard) => plain?.heard(...heard));
  return plain === null || overHttp === null ? overHttp : preferring(plain, overHttp);
}

/** `null` where events go over `fetch`. */
export function nodeStreams(url: string): AskStreamed | null {
  if (isFetchOfOthers() || !/^https?:/.test(url)) return null;
  const module: Requesting | null = builtIn(url.startsWith("https:") ? "node:https" : "node:http");
  return module === null
    ? null
    : async (address, call) => streamed(await requested(module, address, call, SILENCE_MAX_MS));
}

/** A proxy or an interceptor that was set for every `fetch` of this process is meant for our requests, too. */
function isFetchOfOthers(): boolean {
  const carrier = (globalThis as { [CARRIER]?: object })[CARRIER];
  return globalThis.fetch !== fetchOfNode || (carrier !== undefined && carrier.constructor.name !== "Agent");
}

interface NodeModules {
  readonly "node:diagnostics_channel": typeof import("node:diagnostics_channel");
  readonly "node:http": typeof import("node:http");
  readonly "node:https": typeof import("node:https");
  readonly "node:net": typeof import("node:net");
}

export function builtIn<Name extends keyof NodeModules>(name: Name): NodeModules[Name] | null {
  const { process } = globalThis as { process?: Partial<NodeJS.Process> };
  // Others that call themselves Node have a fast `fetch`, and their own idea of this module.
  if (process?.versions?.node === undefined || "bun" in process.versions || "deno" in process.versions) return null;
  return process.getBuiltinModule?.(name) ?? null;
}

/** Looked up with each request: what somebody puts in its place is meant for ours, too. */
interface Requesting {
  readonly request: typeof httpRequest;
}

/** Connections are shared by all clients of this process, as those of `node:http` are. */
let sharedPlainCalls: PlainCalls | null = null;

function plainCallsOfNode(): PlainCalls | null {
  const http = builtIn("node:http");
  const net = builtIn("node:net");
  const diagnostics = builtIn("node:diagnostics_channel");
  if (http === null || net === null || diagnostics === null) return null;
  sharedPlainCalls ??= plainCalls({ http, net, diagnostics });
  return sharedPlainCalls;
}

function preferring(plain: PlainCalls, overHttp: AskShortly): AskShortly {
  return async (address, call) => {
    const answer = call.repeatable && !isFetchOfOthers() ? await plain.ask(address, call) : null;
    return answer === null ? overHttp(address, call) : whole(answer.status, answer.headers, answer.body);
  };
}

function asking(module: Requesting | null, heard: PlainCalls["heard"] = () => {}): AskShortly | null {
  if (module === null) return null;
  return async (address, call) => {
    const response = await requested(module, address, call);
    heard(address, response);
    return taken(response);
  };
}

/** Resolves when the head of the answer is there. */
function requested(
  module: Requesting,
  address: string,
  { method, headers, body, signal }: Omit<ShortCall, "repeatable">,
  silenceMaxMs?: number,
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const length = body === undefined ? null : { "content-length": Buffer.byteLength(body) };
    const outgoing = module.request(address, {
      method,
      headers: length === null ? headers : { ...headers, ...length },
      ...(signal === undefined ? {} : { signal }),
      ...(silenceMaxMs === undefined ? {} : { timeout: silenceMaxMs }),
    });
    outgoing.on("error", reject);
    outgoing.once("response", resolve);
    if (silenceMaxMs !== undefined) endSilent(outgoing);
    outgoing.end(body);
  });
}

/** A reader that takes its time is not a gateway that is gone. */
function endSilent(outgoing: ClientRequest): void {
  let response: IncomingMessage | null = null;
  outgoing.once("response", (answer) => {
    response = answer;
  });
  outgoing.on("timeout", () => {
    if ((response?.readableLength ?? 0) === 0) outgoing.destroy(new Error("nothing came for too long"));
  });
}

function streamed(response: IncomingMessage): StreamedAnswer {
  const { statusCode: status = 0 } = response;
  const text = async () => (await taken(response)).text();
  return { ok: isSuccess(status), status, headers: headersOf(response), text, chunks: response };
}

function taken(response: IncomingMessage): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = [];
    response.on("data", (part: Buffer) => parts.push(part));
    response.once("error", reject);
    response.once("end", () => {
      if (!response.complete) return reject(new Error("the answer was cut off"));
      resolve(whole(response.statusCode ?? 0, headersOf(response), Buffer.concat(parts)));
    });
  });
}

function headersOf({ headers }: IncomingMessage): PlainAnswer["headers"] {
  return { get: (name) => headers[name.toLowerCase()]?.toString() ?? null };
}

function isSuccess(status: number): boolean {
  return status >= 200 && status < 300;
}

function whole(status: number, headers: PlainAnswer["headers"], body: Buffer): Answer {
  const text = body.toString("utf8");
  return { ok: isSuccess(status), status, headers, text: () => Promise.resolve(text) };
}
