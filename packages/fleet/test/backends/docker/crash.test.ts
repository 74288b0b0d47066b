/** The next fleet finds and removes everything that a fleet killed at any moment leaves behind. */

import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { daemonFiles, settingsIn } from "./docker-harness.ts";
import { describeOnEngine } from "./on-engine.ts";

const FLEET = fileURLToPath(new URL("./crashing-fleet.ts", import.meta.url));
const CYCLES = Number(process.env.SANDLOT_TEST_DOCKER_CRASHES ?? 12);
const STEPS = ["create", "use", "destroy"] as const;
/** A create takes some 200 ms on a quiet machine, and many times that on a busy one. */
const LATEST_MS = { create: 800, use: 60, destroy: 120 } as const;

describeOnEngine("a fleet that is killed", (onEngine, engine) => {
  it(`leaves nothing behind, ${CYCLES} times`, { timeout: 60_000 + CYCLES * 20_000 }, () =>
    onEngine(async (stage, harness) => {
      const daemon = await daemonFiles();
      const settings = settingsIn(harness.home, harness.fleetId, engine);
      const installation = { daemon, runtimeDirectory: dirname(daemon.bundle) };
      const args = [JSON.stringify(settings), JSON.stringify(installation)];
      const compiled = mkdtempSync(join(tmpdir(), "sl-docker-compiled-"));
      const killedAt: Record<string, number> = {};
      // Loading takes most of a start, so the next one loads meanwhile.
      let next = load(args, compiled);
      for (let cycle = 0; cycle < CYCLES; cycle++) {
        const step = STEPS[cycle % STEPS.length] ?? "create";
        const victim = next;
        next = load(args, compiled);
        const last = await killSoon(victim, step);
        killedAt[last] = (killedAt[last] ?? 0) + 1;
        // The engine's pending work for it may take effect after its death.
        await stage.pause(300);
        const survivors = await harness.peer();
        for (const { ref, liveness } of await survivors.list({ consistent: true }, stage.signal)) {
          // Its maker is dead: its unfinished work never counts as a create in progress.
          expect(["alive", "dead"]).toContain(liveness);
          await survivors.destroy(ref, stage.signal);
        }
        expect(await survivors.list({ consistent: true }, stage.signal)).toEqual([]);
        await survivors.close();
      }
      next.child.stdin.end();
      expect(await next.ended).toMatch(/^exit code 0: /);
      rmSync(compiled, { recursive: true, force: true });
      console.log(`killed during: ${JSON.stringify(killedAt)}`);
    }),
  );
});

interface Loaded {
  readonly child: ChildProcessByStdio<Writable, Readable, Readable>;
  /** Resolves when it has ended, with its exit and the end of its output. */
  readonly ended: Promise<string>;
}

/** Enough for an error with its cause and both stacks. */
const COMPLAINT_MAX_CHARS = 8_000;

function load(args: readonly string[], compiled: string): Loaded {
  const child = spawn(process.execPath, ["--conditions=sandlot-source", FLEET, ...args], {
    stdio: ["pipe", "pipe", "pipe"],
    env: { ...process.env, NODE_COMPILE_CACHE: compiled },
  });
  let complaint = "";
  child.stderr.on("data", (chunk: Buffer) => {
    complaint = (complaint + chunk.toString()).slice(-COMPLAINT_MAX_CHARS);
  });
  const ended = once(child, "close").then(([code, signal]) => `${signal ?? `exit code ${code}`}: ${complaint}`);
  return { child, ended };
}

/** Lets it begin, kills it a random time after the step has begun, and returns the step it had reached. */
async function killSoon({ child, ended }: Loaded, step: (typeof STEPS)[number]): Promise<string> {
  let last = "";
  const begun = new Promise<void>((resolve) => {
    child.stdout.on("data", (chunk: Buffer) => {
      const steps = chunk.toString().trim().split("\n");
      last = steps.at(-1) ?? last;
      if (steps.includes(step)) resolve();
    });
  });
  child.stdin.write("go\n");
  await Promise.race([begun, ended]);
  await new Promise((resolve) => setTimeout(resolve, Math.random() * LATEST_MS[step]));
  child.kill("SIGKILL");
  // One that ended by itself says why: no request of it may fail.
  expect(await ended, `while it was at ${last}`).toMatch(/^SIGKILL: /);
  return last;
}
