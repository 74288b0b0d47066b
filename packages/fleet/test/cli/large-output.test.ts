/**
 * Output far beyond the ring, through the command line: every byte arrives, however slow a reader is, and no process
 * buffers much. `SANDLOT_LARGE_OUTPUT_BYTES=1073741824` makes it a gibibyte; the peak memory of every process is
 * printed.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { keepNoBlank } from "../support/no-blank.ts";
import { MAIN, runCli } from "./run-cli.ts";

const hasBubblewrap = (process.env.PATH ?? "").split(":").some((folder) => existsSync(join(folder, "bwrap")));
const SIZE = Number(process.env.SANDLOT_LARGE_OUTPUT_BYTES ?? 40 * 1024 * 1024);
const MEBIBYTE = 1024 * 1024;
/**
 * Node with the loaded program takes 110 MiB, its heap 60 MiB, and the windows on the way 30 MiB; the rest is room for the
 * allocator. Output that is kept anywhere is a gibibyte more.
 */
const RSS_MAX_MIB = 320;
/**
 * A young generation of 4 MiB instead of the default 16. A gateway passes a gibibyte on as short-lived text, and V8 lets
 * that grow the heap while it collects: with the default the peak is between 250 and 470 MiB, the more the faster the
 * machine, and level over a second gibibyte. The bound is about what a process keeps, not about when V8 collects.
 */
const NODE_FLAGS = ["--max-semi-space-size=4", "--conditions=sandlot-source"];
const TIMEOUT_MS = 60_000 + (SIZE / MEBIBYTE) * 600;
const home = mkdtempSync(join(tmpdir(), "sll-"));
const environment = { SANDLOT_HOME: home };

describe.skipIf(!hasBubblewrap)("large output (skipped where bubblewrap is not installed)", () => {
  let sum = "";
  let gateway: { readonly child: ChildProcess; readonly url: string; readonly apiKey: string };

  beforeAll(async () => {
    keepNoBlank(home);
    gateway = await startGateway();
    const command = `head -c ${SIZE} /dev/urandom > f; sha256sum < f`;
    sum = (await runCli(["exec", "-t", "big", "--", command], environment)).stdout.slice(0, 64);
    expect(sum).toMatch(/^[0-9a-f]{64}$/);
  }, TIMEOUT_MS);

  afterAll(async () => {
    gateway.child.kill("SIGTERM");
    await once(gateway.child, "exit");
    await runCli(["rm", "-t", "big", "--force", "--purge"], environment);
    rmSync(home, { recursive: true, force: true });
  }, 60_000);

  const ways = { "without a server": false, "through a gateway": true };
  for (const [way, overGateway] of Object.entries(ways)) {
    for (const reader of ["fast", "slow"] as const) {
      it(
        `arrives whole ${way}, with a ${reader} reader`,
        async () => {
          const at = overGateway ? { SANDLOT_URL: gateway.url, SANDLOT_API_KEY: gateway.apiKey } : environment;
          const startedAt = performance.now();
          const read = await catThroughCli(at, reader);
          const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
          const daemon = await daemonPeakMiB(at);
          const peaks = `command line ${read.peakMiB} MiB, daemon ${daemon} MiB, gateway ${peakMiB(gateway.child.pid)} MiB`;
          console.log(`${SIZE / MEBIBYTE} MiB ${way}, ${reader} reader: ${seconds} s; peak memory: ${peaks}`);
          expect(read).toMatchObject({ code: 0, bytes: SIZE, sum, stderr: "" });
          for (const peak of [read.peakMiB, daemon, peakMiB(gateway.child.pid)]) expect(peak).toBeLessThan(RSS_MAX_MIB);
        },
        TIMEOUT_MS,
      );
    }
  }

  /** The slow reader pauses for a while, then reads in bursts: longer than any buffer on the way lasts. */
  async function catThroughCli(at: Readonly<Record<string, string>>, reader: "fast" | "slow") {
    const child = spawn(process.execPath, [...NODE_FLAGS, MAIN, "exec", "-t", "big", "--", "cat f"], {
      env: { ...process.env, NO_COLOR: "1", ...at },
      stdio: ["ignore", "pipe", "pipe"],
    });
    const hash = createHash("sha256");
    let [bytes, peak, stderr] = [0, 0, ""];
    child.stderr.on("data", (text) => (stderr += text));
    const ended = once(child, "close");
    if (reader === "slow") await sleep(2_000);
    let nextPause = SIZE / 4;
    for await (const part of child.stdout as AsyncIterable<Buffer>) {
      hash.update(part);
      bytes += part.length;
      if (bytes < nextPause) continue;
      nextPause += SIZE / 4;
      peak = Math.max(peak, peakMiB(child.pid));
      if (reader === "slow") await sleep(500);
    }
    const [code] = await ended;
    return { code, bytes, sum: hash.digest("hex"), stderr, peakMiB: peak };
  }
});

async function startGateway() {
  const args = [...NODE_FLAGS, MAIN, "serve", "--port", "0"];
  const child = spawn(process.execPath, args, {
    env: { ...process.env, NO_COLOR: "1", ...environment },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let printed = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => (printed += text));
  const found = () => /http:\/\/127\.0\.0\.1:\d+/.exec(printed)?.[0];
  for (let left = 300; found() === undefined && left > 0; left--) await sleep(100);
  const url = found();
  if (url === undefined) throw new Error(`the gateway did not start: ${printed}`);
  return { child, url, apiKey: readFileSync(join(home, "operator.key"), "utf8").trim() };
}

/** The daemon is the process of that name inside. */
async function daemonPeakMiB(at: Readonly<Record<string, string>>): Promise<number> {
  const command = "for p in /proc/[0-9]*; do grep -qs sandboxd $p/comm && grep VmHWM $p/status; done; true";
  const { stdout } = await runCli(["exec", "-t", "big", "--", command], at);
  return Math.max(...[...stdout.matchAll(/VmHWM:\s+(\d+) kB/g)].map(([, kib]) => Math.round(Number(kib) / 1024)));
}

function peakMiB(pid: number | undefined): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Math.round(Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1] ?? 0) / 1024);
}
