/**
 * A rolling upgrade: two `sandlot serve` processes on PostgreSQL with real sandboxes, behind a round robin, each ended by
 * SIGTERM and started again while clients work. `npm run load -- --gateways 2` is the same with many clients.
 */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type ClientLease, SandlotClient } from "@sandlot/client";
import { type Sandbox, SandlotError } from "@sandlot/contract";
import { afterAll, beforeAll, expect, it } from "vitest";
import { RoundRobin } from "../../../../tests/load/round-robin.ts";
import { DeerFlowClient, run } from "../gateway/support/deerflow-client.ts";
import { type GatewayProcess, hasBubblewrap, startGatewayProcess } from "../gateway/support/gateway-process.ts";
import { missingPostgres, type PostgresServer, startPostgres } from "./postgres/postgres-server.ts";

const JOURNAL = "/mnt/user-data/workspace/journal";
const WRITERS = 3;
const LINES = 400;
const EXPECTED = Array.from({ length: LINES }, (_, index) => `line ${index + 1} of them`);
/** Longer than both restarts: the last lines come when `end` is there. */
const END = "/mnt/user-data/workspace/end";
const PRINT = `for i in $(seq 1 ${LINES}); do echo "line $i of them"; [ $i -lt ${LINES - 50} ] || until [ -e ${END} ]; do sleep 0.1; done; sleep 0.02; done`;

const missing = hasBubblewrap ? missingPostgres() : "no bubblewrap; to install: sudo apt-get install -y bubblewrap";
const place = mkdtempSync(join(tmpdir(), "sl-roll-"));
const config = join(place, "config.json");
const running: GatewayProcess[] = [];
let server: PostgresServer;
let balancer: RoundRobin;

beforeAll(async () => {
  if (missing !== null) return;
  server = await startPostgres();
  const store = { type: "postgres", host: server.directory, port: server.port, database: "app", user: "app" };
  writeFileSync(config, JSON.stringify({ backend: "local", store, limits: { max: 20 } }));
  balancer = await RoundRobin.open();
  for (const index of [0, 1]) running[index] = await begin();
  balancer.use(urls());
}, 120_000);
afterAll(async () => {
  await balancer?.close();
  for (const gateway of running) await gateway.stop();
  await server?.dispose();
  rmSync(place, { recursive: true, force: true });
}, 120_000);

const begin = () => startGatewayProcess(join(place, "home"), { arguments: ["--config", config] });
const urls = () => running.map(({ url }) => url);
it("loses no lease, no acknowledged write, no byte of a terminal or of a followed command, and no provisioned sandbox", async (context) => {
  if (missing !== null) return context.skip(missing);
  const apiKey = running[0]?.key ?? "";
  const client = new SandlotClient({ url: balancer.url, apiKey });
  const ending = new AbortController();
  const writers = Array.from({ length: WRITERS }, (_, index) => write(client, `w${index}`, ending.signal));
  const held = await client.acquire({ thread: "held", purpose: "through the upgrade", ttlMs: 60_000 });
  const lost: string[] = [];
  held.onLost(({ reason }) => void lost.push(reason));
  await held.sandbox.files.write(JOURNAL, "");
  const printing = followed(held, "printing");
  const shown = inTerminal(apiKey, "held");
  const deerflow = new DeerFlowClient(balancer.url, apiKey);
  const made = await deerflow.create("agent", "provisioned");
  await run(made, "echo $$ > /tmp/marker");
  const alive = isAlways(deerflow, "provisioned", ending.signal);

  for (const index of [0, 1]) {
    const former = running[index];
    if (former === undefined) throw new Error("both run");
    // Long enough for every client to be at this gateway, too.
    await sleep(1_000);
    await balancer.takeOut(former.url);
    const ended = former.stop();
    await takesNoNewWork(former.url, apiKey);
    expect(await ended).toBe(0);
    running[index] = await begin();
    balancer.use(urls());
  }
  await sleep(1_000);
  ending.abort();
  await held.sandbox.files.write(END, "");

  expect(await printing).toEqual(EXPECTED);
  expect(await shown).toEqual(EXPECTED);
  expect(lost).toEqual([]);
  expect((await held.sandbox.exec("echo still here")).stdout).toBe("still here\n");
  await held.release();
  for (const { thread, acknowledged, problems } of await Promise.all(writers)) {
    expect(problems).toEqual([]);
    expect(acknowledged.length).toBeGreaterThan(5);
    await using lease = await client.acquire({ thread });
    expect((await lease.sandbox.files.readText(JOURNAL)).trimEnd().split("\n")).toEqual(acknowledged);
  }
  expect(await alive).toEqual({ wrong: [], isMany: true });
  const again = await deerflow.create("agent", "provisioned");
  expect(new URL(again.sandbox_url).pathname).toBe(new URL(made.sandbox_url).pathname);
  expect(await run(again, "test -s /tmp/marker && echo the same")).toContain("the same");
  expect(balancer.failures).toEqual([]);
  for (const thread of ["held", "late", "w0", "w1", "w2"]) await client.deleteThread(thread, { force: true });
  await deerflow.destroy("provisioned");
}, 300_000);

/** One line after the other; what was answered counts. */
async function write(client: SandlotClient, thread: string, ending: AbortSignal) {
  const acknowledged: string[] = [];
  const problems: string[] = [];
  for (let round = 0; !ending.aborted; round += 1) {
    const line = `${thread}-${round}`;
    try {
      await using lease = await client.acquire({ thread, ttlMs: 60_000 });
      const { exitCode } = await lease.sandbox.exec(`echo ${line} >> ${JOURNAL}`);
      if (exitCode === 0) acknowledged.push(line);
      else problems.push(`${line}: exit ${exitCode}`);
    } catch (error) {
      problems.push(`${line}: ${error}`);
    }
  }
  return { thread, acknowledged, problems };
}

/** The lines of a command, from event to event without a gap or a repetition. */
async function followed({ sandbox }: ClientLease, execId: string): Promise<readonly string[]> {
  await sandbox.spawn(PRINT, { execId });
  let text = "";
  for await (const event of sandbox.execs.follow(execId, { from: { stdout: 0, stderr: 0 } })) {
    if (event.type === "end") break;
    if (event.type === "gap") throw new SandlotError("internal", { problem: `a gap at ${event.fromOffset}` });
    expect(event.offset).toBe(text.length);
    text += Buffer.from(event.bytes).toString();
  }
  return linesOf(text);
}

/** The lines of a terminal, which is attached again from its offset where a gateway ends the connection. */
async function inTerminal(apiKey: string, thread: string): Promise<readonly string[]> {
  let [terminalId, text]: [string | null, string] = [null, ""];
  for (let attempt = 0; attempt < 100; attempt += 1) {
    try {
      await using lease = await new SandlotClient({ url: urls().at(-1) ?? "", apiKey }).acquire({ thread });
      const terminal = await attached(lease.sandbox, terminalId, text.length);
      if (terminalId === null) terminal.write(`stty -echo; PS1=; clear; ${PRINT}; exit\n`);
      terminalId = terminal.terminalId;
      for await (const { offset, droppedBytes, bytes } of terminal.output) {
        expect([offset, droppedBytes]).toEqual([text.length, 0]);
        text += Buffer.from(bytes).toString("latin1");
      }
      if ((await terminal.ended) !== null) return linesOf(text);
    } catch (error) {
      if (attempt === 99 || (error as Error).name === "AssertionError") throw error;
    }
    await sleep(200);
  }
  throw new Error("the terminal did not end");
}

function attached({ terminals }: Sandbox, terminalId: string | null, fromOffset: number) {
  return terminalId === null ? terminals.open({ columns: 80, rows: 24 }) : terminals.attach(terminalId, { fromOffset });
}

function linesOf(text: string): readonly string[] {
  return text.match(/line \d+ of them/g) ?? [];
}

async function isAlways(client: DeerFlowClient, id: string, ending: AbortSignal) {
  const wrong: unknown[] = [];
  let looks = 0;
  for (; !ending.aborted; looks += 1) {
    const isAlive = await client.isAlive(id).catch((error: unknown) => error);
    if (isAlive !== true) wrong.push(isAlive);
    await sleep(50);
  }
  return { wrong, isMany: looks > 10 };
}

/** From its first refusal on, a gateway that drains refuses everything new, until it is gone. */
async function takesNoNewWork(url: string, apiKey: string): Promise<void> {
  const headers = { authorization: `Bearer ${apiKey}`, "content-type": "application/json", connection: "close" };
  const body = JSON.stringify({ command: "true" });
  const ask = () =>
    fetch(`${url}/v1/threads/late/exec`, { method: "POST", headers, body }).then(
      ({ status }) => status,
      () => "refused" as const,
    );
  const answers: (number | "refused")[] = [];
  while (answers.filter((answer) => answer === "refused").length < 3) answers.push(await ask());
  const first = answers.findIndex((answer) => answer !== 200);
  expect(answers.slice(first).filter((answer) => answer === 200)).toEqual([]);
}
