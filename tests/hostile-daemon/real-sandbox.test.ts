/** Real sandboxes of the local backend with a replaced daemon, while a bystander uses an unchanged one. */

import { chmodSync, cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { isSandlotError } from "@sandlot/contract";
import { filesBeside, type SandboxdFiles } from "@sandlot/sandboxd";
import { build } from "esbuild";
import { afterAll, expect, test } from "vitest";
import { createLocalBackend } from "../../packages/fleet/src/backends/local/backend.ts";
import type { World } from "../../packages/fleet/src/world/world.ts";
import {
  blueprint,
  daemonFiles,
  openHarness,
  removeDaemon,
  settingsIn,
  world,
} from "../../packages/fleet/test/backends/local/local-harness.ts";
import { onHarness } from "../../packages/fleet/test/backends/on-harness.ts";
import { TurnWatch } from "../../packages/fleet/test/support/turn-watch.ts";
import { Chance } from "../fuzz/generate.ts";
import { SANDBOX_CALLS } from "./cases.ts";
import { HONEST } from "./double/honest.ts";
import { honestLength } from "./double/steps.ts";

const CASES = 500;
const SANDBOXES = 4;
const TURN_MAX_MS = 50;
const PATHS = Object.keys(SANDBOX_CALLS);

afterAll(removeDaemon);

/** Deadlines are shortened during calls, and normal while sandboxes are created. */
let haste = 1;
const hasty: World = {
  ...world,
  monotonicMs: () => world.monotonicMs(),
  timer: (delayMs, fire, options) => world.timer(delayMs / haste, fire, options),
};

async function hostileFiles(): Promise<SandboxdFiles> {
  const { bundle } = await daemonFiles();
  const directory = mkdtempSync(join(tmpdir(), "sl-hostile-bundle-"));
  afterAll(() => rmSync(directory, { recursive: true, force: true }));
  cpSync(dirname(bundle), directory, { recursive: true });
  chmodSync(directory, 0o755);
  const outfile = join(directory, basename(bundle));
  const entry = fileURLToPath(new URL("./double/main.ts", import.meta.url));
  await build({ entryPoints: [entry], outfile, bundle: true, platform: "node", target: "node20", format: "cjs" });
  return filesBeside(outfile);
}

test("500 cases against real sandboxes: the fleet survives, every call ends typed, bystanders are served", async () => {
  const daemon = await hostileFiles();
  await onHarness(await openHarness(), blueprint, async (stage, harness) => {
    const settings = settingsIn(harness.home, harness.fleetId);
    const backend = createLocalBackend({ settings, world: hasty, installation: { daemon } });
    const outcomes: Record<string, number> = {};
    const untyped: string[] = [];
    try {
      const made = await Promise.all(
        Array.from({ length: SANDBOXES }, async () => stage.make(stage.newKey(), {}, backend)),
      );
      const bystander = (await stage.attach((await stage.make(stage.newKey())).target)).sandbox;
      const control = await latencies(
        (command) => bystander.exec(command),
        () => sleep(2_000),
      );
      const watch = new TurnWatch(TURN_MAX_MS);
      haste = 300;
      const beside = await latencies(
        (command) => bystander.exec(command),
        async () => {
          await Promise.all(
            made.map(async ({ target }, sandbox) => {
              for (let number = sandbox; number < CASES; number += SANDBOXES) {
                const { path, plan } = planned(number);
                const outcome = await once(() => stage.attach(target, backend), path, plan);
                outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
                if (outcome.startsWith("untyped")) untyped.push(`${plan}: ${outcome}`);
              }
            }),
          );
        },
      );
      haste = 1;
      const { worstMs, slow } = watch.stop();
      console.log(`real sandboxes: ${CASES} cases, ${JSON.stringify(outcomes)}, worst turn ${worstMs.toFixed(1)} ms`);
      console.log(`  bystander's exec: ${beside}; control: ${control}`);
      expect(untyped).toEqual([]);
      expect(slow).toEqual([]);
      expect(outcomes.answered ?? 0).toBeLessThan(CASES / 2);
    } finally {
      haste = 1;
      await backend.close();
    }
  });
});

/** Two of three drawn, one broken off. */
function planned(number: number): { readonly path: string; readonly plan: string } {
  const chance = new Chance(14_000_003 + number);
  const path = chance.pick(PATHS);
  const length = honestLength(HONEST[path] ?? { kind: "json", body: Buffer.alloc(0) });
  const how = number % 3 === 0 ? `t${chance.below(length + 1)}` : "r";
  return { path, plan: `${chance.below(2 ** 31)}.${how}.${path}` };
}

type Attached = Awaited<ReturnType<Parameters<typeof once>[0]>>;

async function once(
  attach: () => Promise<{
    readonly sandbox: Parameters<NonNullable<(typeof SANDBOX_CALLS)[string]>>[0];
    close(): Promise<void>;
  }>,
  path: string,
  plan: string,
): Promise<string> {
  let attachment: Attached | undefined;
  try {
    attachment = await attach();
    await attachment.sandbox.exec(`plan ${plan}`);
    await SANDBOX_CALLS[path]?.(attachment.sandbox);
    return "answered";
  } catch (error) {
    return isSandlotError(error) ? error.code : `untyped ${error instanceof Error ? error.stack : error}`;
  } finally {
    await attachment?.close();
  }
}

async function latencies(exec: (command: string) => Promise<unknown>, work: () => Promise<unknown>): Promise<string> {
  const took: number[] = [];
  let isOver = false;
  const asking = (async () => {
    while (!isOver) {
      const before = performance.now();
      await exec("true");
      took.push(performance.now() - before);
      await sleep(20);
    }
  })();
  await work();
  isOver = true;
  await asking;
  took.sort((a, b) => a - b);
  const at = (share: number) => (took[Math.min(took.length - 1, Math.floor(took.length * share))] ?? 0).toFixed(1);
  return `median ${at(0.5)} ms, p99 ${at(0.99)} ms, worst ${at(1)} ms (${took.length} calls)`;
}
