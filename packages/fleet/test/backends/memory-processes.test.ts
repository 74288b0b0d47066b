/** Two processes with one home on the memory backend: they share the store, but not the memory. */

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { isSandlotError } from "@sandlot/contract";
import { afterEach, expect, it } from "vitest";
import { openFleet } from "../../src/index.ts";

const HOLDER = fileURLToPath(new URL("./memory-holder.ts", import.meta.url));
const TIMES = { sessionLifetimeMs: 1_500, housekeepingIntervalMs: 300, orphanTimeoutMs: 1_500 };
const cleanups: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

it("a sandbox in another process's memory is unreachable while that process lives, and dead with it", async () => {
  const home = await mkdtemp(join(tmpdir(), "sandlot-two-"));
  cleanups.push(() => rm(home, { recursive: true, force: true }));
  const { child, say } = holder(home);
  expect(await say(null)).toBe("holding");
  const fleet = await openFleet({ backend: "memory", home, ...TIMES });
  cleanups.push(() => fleet.close());

  const refused = await fleet.acquire({ thread: "shared" }).catch((error: unknown) => error);
  expect(isSandlotError(refused, "sandbox_unreachable") && refused.message).toMatch(/another process/);
  // Several rounds of housekeeping: each must take the other's sandbox for alive.
  const before = await say("");
  await sleep(2_500);
  expect(before).toMatch(/still here$/);
  expect(await say("")).toBe(before);

  child.kill("SIGKILL");
  const lease = await firstLease(() => fleet.acquire({ thread: "shared" }));
  expect((await lease.sandbox.exec("echo mine now")).stdout).toBe("mine now\n");
  await lease.release();
});

/** The death of the other process is noticed, not announced: until then the error stays `sandbox_unreachable`. */
async function firstLease<T>(acquire: () => Promise<T>): Promise<T> {
  for (let tries = 0; ; tries += 1) {
    try {
      return await acquire();
    } catch (error) {
      if (!isSandlotError(error, "sandbox_unreachable") || tries === 50) throw error;
      await sleep(100);
    }
  }
}

function holder(home: string): { child: ChildProcess; say: (line: string | null) => Promise<string> } {
  const { NODE_EXTRA_CA_CERTS: _, ...env } = process.env;
  const args = ["--conditions=sandlot-source", "--disable-warning=ExperimentalWarning", HOLDER, home];
  const child = spawn(process.execPath, args, { env, stdio: ["pipe", "pipe", "inherit"] });
  cleanups.push(async () => child.kill("SIGKILL"));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const say = async (line: string | null) => {
    if (line !== null) child.stdin.write(`${line}\n`);
    const { value } = await lines.next();
    return String(value);
  };
  return { child, say };
}
