/**
 * Load: many clients on many threads, each doing an agent's turn: lease, exec, file, release. Every output is checked
 * against a nonce. Meanwhile idle event streams and terminals are held, and one client reads nothing.
 *
 *   npm run load -- --seconds 60 --clients 200 --threads 200 --users 20 --backend local
 *   npm run load -- --gateways 2 --store postgres     several gateways and a rolling restart (gateways.ts)
 *
 * Prints latencies. Fails on any error, any wrong output, any lost stream, and anything left behind.
 */

import { connect } from "node:net";
import { parseArgs } from "node:util";
import { SandlotClient } from "@sandlot/client";
import { isSandlotError } from "@sandlot/contract";
import { WebSocket } from "ws";
import { openGatewayStage } from "../fuzz/stage.ts";
import { Latencies } from "./latencies.ts";

const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "60" },
    clients: { type: "string", default: "200" },
    threads: { type: "string", default: "200" },
    users: { type: "string", default: "20" },
    streams: { type: "string", default: "1000" },
    terminals: { type: "string", default: "200" },
    backend: { type: "string", default: "local" },
    gateways: { type: "string" },
    store: { type: "string", default: "sqlite" },
  },
});
if (values.gateways !== undefined) {
  const { gatewaysUnderLoad } = await import("./gateways.ts");
  const asked = (name: "clients" | "threads", otherwise: number) =>
    process.argv.includes(`--${name}`) ? Number(values[name]) : otherwise;
  const [gateways, seconds] = [Number(values.gateways), Number(values.seconds)];
  const options = {
    gateways,
    seconds,
    store: values.store,
    clients: asked("clients", 16),
    threads: asked("threads", 32),
  };
  process.exit(await gatewaysUnderLoad(options));
}
const [seconds, clientCount, threadCount, userCount, streamCount, terminalCount] = (
  ["seconds", "clients", "threads", "users", "streams", "terminals"] as const
).map((name) => Number(values[name])) as [number, number, number, number, number, number];

const latencies = new Latencies();
const problems: string[] = [];
const note = (problem: string) => {
  if (problems.length < 50) problems.push(problem);
};

const stage = await openGatewayStage(
  {
    backend: values.backend as "memory",
    limits: { max: threadCount + 10, queueMax: 10_000 },
    acquireTimeoutMs: 120_000,
  },
  { streamsPerUserMax: 10_000 },
);
const { url, keys } = stage.gateway;
const users = await Promise.all(
  Array.from({ length: userCount }, async (_, index) => {
    const { key } = await keys.create({ scope: "user", user: `load-${index}` });
    return { key, client: new SandlotClient({ url, apiKey: key }) };
  }),
);
const operator = (await keys.create({ scope: "operator" })).key;
const userOf = (thread: number) => users[thread % userCount] as (typeof users)[number];

const stop = new AbortController();
const held = await holdStreams(streamCount);
const shells = await holdTerminals(terminalCount);
const slow = holdSlowReader();
console.log(`holding ${held.open()} event streams and ${shells.open()} terminals; ${clientCount} clients begin`);

const until = performance.now() + seconds * 1_000;
let turns = 0;
await Promise.all(Array.from({ length: clientCount }, (_, index) => client(index)));
if (held.open() !== streamCount) note(`${streamCount - held.open()} event streams were lost`);
if (shells.open() !== shells.expected) note(`${shells.expected - shells.open()} terminals were lost`);
stop.abort();
slow.destroy();
shells.close();
await held.closed();
problems.push(...(await stage.done()));

console.log(latencies.table());
console.log(`${turns} turns in ${seconds} s (${(turns / seconds).toFixed(0)} per second), ${problems.length} problems`);
for (const problem of problems) console.error(problem);
process.exit(problems.length === 0 && turns > 0 ? 0 : 1);

async function client(index: number): Promise<void> {
  for (let round = 0; performance.now() < until; round += 1) {
    const thread = (index + round) % threadCount;
    try {
      await turn(`load-${thread}`, userOf(thread).client, `${index}-${round}-${Math.random().toString(36).slice(2)}`);
      turns += 1;
    } catch (error) {
      note(`client ${index}: ${isSandlotError(error) ? `${error.code} ${error.message}` : String(error)}`);
    }
  }
}

async function turn(thread: string, from: SandlotClient, nonce: string): Promise<void> {
  const path = `/mnt/user-data/workspace/${nonce}`;
  const lease = await latencies.of("acquire", () => from.acquire({ thread, purpose: "load", ttlMs: 60_000 }));
  try {
    const result = await latencies.of("exec", () => lease.sandbox.exec(`echo ${nonce}; printf ${nonce} > ${path}`));
    if (result.stdout !== `${nonce}\n`)
      note(`${thread}: exec printed ${JSON.stringify(result.stdout)} instead of ${nonce}`);
    const text = await latencies.of("read", () => lease.sandbox.files.readText(path));
    if (text !== nonce) note(`${thread}: the file holds ${JSON.stringify(text)} instead of ${nonce}`);
    await latencies.of("remove", () => lease.sandbox.files.remove(path));
  } finally {
    await latencies.of("release", () => lease.release());
  }
}

/** Follows commands that print nothing. */
async function holdStreams(count: number) {
  let open = 0;
  const ends: Promise<void>[] = [];
  const headersOf = (thread: number) => ({ authorization: `Bearer ${userOf(thread).key}` });
  for (let thread = 0; thread < Math.min(count, threadCount); thread += 1) {
    const body = JSON.stringify({ command: "cat", background: true, execId: "silent", timeoutMs: 0 });
    const headers = { ...headersOf(thread), "content-type": "application/json" };
    const started = await fetch(`${url}/v1/threads/load-${thread}/exec`, { method: "POST", headers, body });
    if (started.status !== 202) throw new Error(`a command was answered ${started.status} ${await started.text()}`);
    await started.arrayBuffer();
  }
  for (let index = 0; index < count; index += 1) {
    const thread = index % threadCount;
    const headers = { ...headersOf(thread), accept: "text/event-stream" };
    const response = await fetch(`${url}/v1/threads/load-${thread}/execs/silent/output`, {
      headers,
      signal: stop.signal,
    });
    if (!response.ok || response.body === null) throw new Error(`a stream was answered ${response.status}`);
    open += 1;
    ends.push(
      drained(response.body.getReader()).then(() => {
        open -= 1;
      }),
    );
  }
  return { open: () => open, closed: () => Promise.all(ends) };
}

async function drained(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<void> {
  try {
    while (!(await reader.read()).done);
  } catch {
    // This process ended it.
  }
}

/** None where the backend has no terminals; that is printed, and is no error. */
async function holdTerminals(count: number) {
  const sockets = new Set<WebSocket>();
  let expected = count;
  for (let index = 0; index < count && expected > 0; index += 1) {
    const { key } = userOf(index);
    const socket = new WebSocket(`${url.replace("http", "ws")}/v1/threads/load-${index % threadCount}/terminal`, {
      headers: { authorization: `Bearer ${key}` },
    });
    await new Promise<void>((resolve, reject) => {
      socket.once("open", resolve).once("error", reject);
      socket.once("unexpected-response", (_request, { statusCode }) => {
        if (statusCode === 501) expected = 0;
        else reject(new Error(`a terminal was answered ${statusCode}`));
        resolve();
      });
    });
    if (expected > 0) {
      sockets.add(socket);
      socket.once("close", () => sockets.delete(socket));
    }
  }
  if (expected === 0 && count > 0) console.log("this backend has no terminals");
  const close = () => {
    for (const socket of sockets) socket.terminate();
  };
  return { open: () => sockets.size, expected, close };
}

/** Requests the events of the whole fleet and never reads one. */
function holdSlowReader() {
  const { hostname, port, host } = new URL(url);
  const socket = connect(Number(port), hostname);
  socket.pause();
  socket.write(`GET /v1/events HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${operator}\r\n\r\n`);
  // The gateway may cut it off.
  socket.on("error", () => undefined);
  return socket;
}
