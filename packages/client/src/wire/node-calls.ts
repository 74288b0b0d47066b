/**
 * Short calls from Node: a JSON question, an answer that is taken whole. They go over connections of our own
 * (`plain-calls.ts`) or over `node:http`, and not over `fetch`: `fetch` makes a stream of every body, which costs a short
 * command a tenth of its time, and gives up on an answer after five minutes, which a command may well take. Streams, files
 * and forms still go over `fetch`, and so does everything in browsers, where something stands in for Node's own `fetch` or
 * carries it, and where a `fetch` was given.
 *
 * Invariants
 * - Nothing of Node is imported: it is asked for where there is one, so that a bundle for browsers needs nothing of it.
 * - It rejects when there is no whole answer, whatever the reason. Only what is `repeatable` is asked again here, and only
 *   because of the connection that was chosen here.
 */

import type { request as httpRequest, IncomingMessage } from "node:http";
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

/** A proxy or an interceptor that was set for every `fetch` of this process is meant for our requests, too. */
function isFetchOfOthers(): boolean {
  const carrier = (globalThis as { [CARRIER]?: object })[CARRIER];
  return globalThis.fetch !== fetchOfNode || (carrier !== undefined && carrier.constructor.name !== "Agent");
}

type ModuleName = "node:diagnostics_channel" | "node:http" | "node:https" | "node:net";

function builtIn<Name extends ModuleName>(name: Name) {
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
  return (address, { method, headers, body, signal }) =>
    new Promise((resolve, reject) => {
      const length = body === undefined ? null : { "content-length": Buffer.byteLength(body) };
      const outgoing = module.request(address, {
        method,
        headers: length === null ? headers : { ...headers, ...length },
        ...(signal === undefined ? {} : { signal }),
      });
      outgoing.once("error", reject);
      outgoing.once("response", (response) => {
        heard(address, response);
        taken(response).then(resolve, reject);
      });
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
      const get = (name: string) => headers[name.toLowerCase()]?.toString() ?? null;
      resolve(whole(status, { get }, Buffer.concat(parts)));
    });
  });
}

function whole(status: number, headers: PlainAnswer["headers"], body: Buffer): Answer {
  const text = body.toString("utf8");
  return { ok: status >= 200 && status < 300, status, headers, text: () => Promise.resolve(text) };
}
