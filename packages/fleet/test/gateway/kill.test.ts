/**
 * A gateway is killed in the middle of fifty execs, writes and uploads, on real sandboxes. Acknowledged writes are
 * there, every file is whole, the sandboxes go on, and the followers of a command go on following.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandlotClient } from "@sandlot/client";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type GatewayProcess, hasBubblewrap, startGatewayProcess } from "./support/gateway-process.ts";
import { sseEvents } from "./support/sse.ts";

const THREADS = ["k0", "k1", "k2", "k3", "k4"];
const WORKERS = 50;
const FOLLOWED_LINES = 150;
/** On a machine that has a processor to spare. */
const USABLE_WITHIN_MS = 3_000;
const WORKSPACE = "/mnt/user-data/workspace";

/** A file whose every part names its writer and turn, so that a torn one is seen. */
function bodyOf(writer: number, turn: number): string {
  return `${writer}:${turn}\n`.repeat(20_000);
}

/** The turn of a file; throws when it is not one whole turn's. */
function turnOf(writer: number, text: string): number {
  const [first = ""] = text.split("\n", 1);
  const turn = Number(first.split(":")[1]);
  if (text !== bodyOf(writer, turn)) throw new Error(`the file of writer ${writer} is torn: ${first}, ${text.length}`);
  return turn;
}

interface Writer {
  readonly kind: "exec" | "file" | "upload";
  readonly number: number;
  readonly thread: string;
  readonly path: string;
  acknowledged: number;
  tried: number;
}

function writerOf(number: number): Writer {
  const kind = (["exec", "file", "upload"] as const)[number % 3] ?? "exec";
  const folder = kind === "upload" ? "/mnt/user-data/uploads" : WORKSPACE;
  const thread = THREADS[number % THREADS.length] ?? "";
  return { kind, number, thread, path: `${folder}/w${number}.txt`, acknowledged: -1, tried: -1 };
}

class Caller {
  gateway: GatewayProcess;
  constructor(gateway: GatewayProcess) {
    this.gateway = gateway;
  }

  fetch(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = { authorization: `Bearer ${this.gateway.key}`, ...(init.headers as Record<string, string>) };
    return fetch(`${this.gateway.url}${path}`, { ...init, headers });
  }

  async exec(thread: string, body: Record<string, unknown>): Promise<{ stdout: string; exitCode: number }> {
    const headers = { "content-type": "application/json" };
    const init = { method: "POST", headers, body: JSON.stringify(body) };
    const response = await this.fetch(`/v1/threads/${thread}/exec`, init);
    if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
    return (await response.json()) as { stdout: string; exitCode: number };
  }

  async write({ kind, number, thread, path }: Writer, turn: number): Promise<void> {
    if (kind === "exec") {
      const words = `yes ${number}:${turn} | head -n 20000 > ${path}.new && mv ${path}.new ${path}`;
      const { exitCode } = await this.exec(thread, { command: words });
      if (exitCode !== 0) throw new Error(`the command ended with ${exitCode}`);
      return;
    }
    const content = bodyOf(number, turn);
    const form = new FormData();
    form.append("files", new Blob([content]), `w${number}.txt`);
    const response =
      kind === "file"
        ? await this.fetch(`/v1/threads/${thread}/files/content?path=${path}`, { method: "PUT", body: content })
        : await this.fetch(`/v1/threads/${thread}/uploads`, { method: "POST", body: form });
    if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
    await response.text();
  }

  async read({ thread, path }: Writer): Promise<string | null> {
    const response = await this.fetch(`/v1/threads/${thread}/files/content?path=${path}`);
    if (response.status === 404) return null;
    if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
    return response.text();
  }
}

describe.skipIf(!hasBubblewrap)("kill -9 of a gateway (skipped where bubblewrap is not installed)", () => {
  const home = mkdtempSync(join(tmpdir(), "slk-"));
  let caller: Caller;

  beforeAll(async () => {
    caller = new Caller(await startGatewayProcess(home));
    await Promise.all(THREADS.map((thread) => caller.exec(thread, { command: "true" })));
  }, 60_000);

  afterAll(async () => {
    for (const thread of THREADS) {
      const response = await caller.fetch(`/v1/threads/${thread}?force=true`, { method: "DELETE" });
      expect(response.status).toBe(200);
    }
    expect(await caller.gateway.stop()).toBe(0);
    const fleet = readdirSync(home).find((name) => name.startsWith("fleet-")) ?? "";
    expect(readdirSync(join(home, fleet, "objects"))).toEqual([]);
    rmSync(home, { recursive: true });
  }, 60_000);

  test("loses nothing that was acknowledged, tears no file, and everything goes on", async () => {
    const writers = Array.from({ length: WORKERS }, (_, number) => writerOf(number));
    const killing = new AbortController();
    const unexpected: unknown[] = [];
    const working = writers.map(async (writer) => {
      for (let turn = 0; !killing.signal.aborted; turn += 1) {
        writer.tried = turn;
        try {
          await caller.write(writer, turn);
          writer.acknowledged = turn;
        } catch (error) {
          if (!killing.signal.aborted) unexpected.push(error);
        }
      }
    });
    const begun = new Set<string>();
    const followers = THREADS.map((thread) => follow(caller, thread, killing.signal, () => begun.add(thread)));
    const client = new SandlotClient({ url: caller.gateway.url, apiKey: caller.gateway.key });
    const lease = await client.acquire({ thread: "k0", ttlMs: 30_000 });
    await lease.sandbox.spawn(counting(), { execId: "client" });
    const clientText = textThroughClient(lease.sandbox.execs.follow("client"), () => begun.add("client"));

    // All are in the middle of their work: each writer has written, each follower has read.
    await until(() => begun.size > THREADS.length && writers.every(({ acknowledged }) => acknowledged >= 0), 45_000);
    const generations = await sandboxesOf(caller);
    killing.abort();
    await caller.gateway.kill();
    const killed = performance.now();
    const { port } = new URL(caller.gateway.url);
    caller.gateway = await startGatewayProcess(home, { port: Number(port) });
    const listening = performance.now();
    const usable = await Promise.all(
      THREADS.map(async (thread) => {
        expect((await caller.exec(thread, { command: "echo here" })).stdout).toBe("here\n");
        return performance.now();
      }),
    );
    const usableMs = Math.max(...usable) - listening;
    await Promise.all(working);
    expect(unexpected).toEqual([]);

    for (const writer of writers) {
      const turn = turnOf(writer.number, (await caller.read(writer)) ?? "");
      expect(turn, `writer ${writer.number} (${writer.kind})`).toBeGreaterThanOrEqual(writer.acknowledged);
      expect(turn).toBeLessThanOrEqual(writer.tried);
    }
    expect(await sandboxesOf(caller), "the same sandboxes").toEqual(generations);

    const lines = Array.from({ length: FOLLOWED_LINES }, (_, line) => `line ${line}\n`).join("");
    expect(await clientText).toBe(lines);
    expect(await Promise.all(followers)).toEqual(THREADS.map(() => lines));
    await lease.release();
    const turns = writers.reduce((sum, { acknowledged }) => sum + acknowledged + 1, 0);
    console.log(
      `${turns} writes acknowledged before the kill; listening after ${Math.round(listening - killed)} ms, ` +
        `all ${THREADS.length} sandboxes usable ${Math.round(usableMs)} ms later`,
    );
    expect(usableMs).toBeLessThan(USABLE_WITHIN_MS * (await slowness()));
    // Listing the uploads clears them.
    for (const thread of THREADS) expect((await caller.fetch(`/v1/threads/${thread}/uploads`)).status).toBe(200);
    expect(await strays(caller), "what was being written when the gateway died").toEqual([]);
  }, 120_000);
});

/** How many times longer than usual this machine takes now to start a Node; it may be busy. */
async function slowness(): Promise<number> {
  const began = performance.now();
  await once(spawn(process.execPath, ["-e", "0"], { stdio: "ignore" }), "exit");
  return Math.max(1, (performance.now() - began) / 100);
}

function counting(): string {
  return `i=0; while [ $i -lt ${FOLLOWED_LINES} ]; do echo "line $i"; i=$((i+1)); sleep 0.05; done`;
}

/** Starts a command as a stream, and resumes it with `Last-Event-ID` when the gateway is another. */
async function follow(caller: Caller, thread: string, killed: AbortSignal, onText: () => void): Promise<string> {
  const init = {
    method: "POST",
    headers: { accept: "text/event-stream", "content-type": "application/json" },
    body: JSON.stringify({ command: counting(), execId: "followed" }),
  };
  let text = "";
  let last: string | null = null;
  const first = caller.gateway;
  let response = await caller.fetch(`/v1/threads/${thread}/exec`, init);
  for (;;) {
    if (response.status !== 200) throw new Error(`${thread}: ${response.status} ${await response.text()}`);
    try {
      for await (const { event, id, data } of sseEvents(response)) {
        last = id ?? last;
        if (event === "stdout") {
          text += Buffer.from(String(data.base64), "base64").toString();
          onText();
        }
        if (event === "exit") return text;
        if (event === "error" || event === "gap") throw new Error(`${event} ${JSON.stringify(data)}`);
      }
    } catch (error) {
      if (!killed.aborted) throw error;
    }
    await until(() => caller.gateway !== first, 30_000);
    const headers = { accept: "text/event-stream", "last-event-id": last ?? "0.0" };
    response = await caller.fetch(`/v1/threads/${thread}/execs/followed/output`, { headers });
  }
}

async function textThroughClient(
  events: AsyncIterable<{ type: string; bytes?: Uint8Array }>,
  onText: () => void,
): Promise<string> {
  const parts: Uint8Array[] = [];
  for await (const event of events) {
    expect(event.type).not.toBe("gap");
    if (event.bytes === undefined) continue;
    parts.push(event.bytes);
    onText();
  }
  return Buffer.concat(parts).toString();
}

async function sandboxesOf(caller: Caller): Promise<readonly string[]> {
  const { sandboxes } = (await (await caller.fetch("/v1/sandboxes")).json()) as {
    sandboxes: { sandboxId: string; thread: string; generation: number }[];
  };
  return sandboxes.map(({ sandboxId, thread, generation }) => `${thread} ${sandboxId} ${generation}`).sort();
}

/** Unrequested files. */
async function strays(caller: Caller): Promise<readonly string[]> {
  const found: string[] = [];
  for (const thread of THREADS) {
    const { stdout } = await caller.exec(thread, { command: "find /mnt/user-data -type f" });
    const names = stdout.split("\n").filter((path) => path !== "" && !/\/w\d+\.txt(\.new)?$/.test(path));
    found.push(...names.map((path) => `${thread} ${path}`));
  }
  return found;
}

async function until(isSo: () => boolean, withinMs: number): Promise<void> {
  const end = performance.now() + withinMs;
  while (!isSo()) {
    if (performance.now() > end) throw new Error("it did not become so in time");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
