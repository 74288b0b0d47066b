/** The next fleet finds and removes everything that a fleet killed at any moment leaves behind. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, it, onTestFinished } from "vitest";
import { PATIENCE } from "../../host/limits/stage.ts";
import { daemonFiles, onStage, removeDaemon, settingsIn, world } from "./local-harness.ts";

afterAll(removeDaemon);

const PROGRAM = fileURLToPath(new URL("./crashing-fleet.ts", import.meta.url));
const KILLS = 16;
/** From before the first create to after several sandboxes exist. */
const KILLED_WITHIN_MS = 600 * PATIENCE;

it(`everything that ${KILLS} killed fleets were making is found and removed`, { timeout: 300_000 * PATIENCE }, () =>
  onStage(async (stage, harness) => {
    const compiled = mkdtempSync(join(tmpdir(), "sl-crash-compiled-"));
    onTestFinished(() => rmSync(compiled, { recursive: true, force: true }));
    let [listed, running] = [0, 0];
    for (let kill = 0; kill < KILLS; kill++) {
      const settings = JSON.stringify(settingsIn(harness.home, harness.fleetId));
      await killedFleet(settings, (kill * KILLED_WITHIN_MS) / KILLS, compiled);
      const next = await harness.peer();
      for (const object of await next.list({ consistent: true }, stage.signal)) {
        listed += 1;
        if (object.liveness === "alive") running += 1;
        await next.destroy(object.ref, stage.signal);
      }
      // `onStage` checks everything else at the end; the round identifies running processes.
      expect(await stage.refs(next)).toEqual([]);
    }
    console.log(`${KILLS} fleets killed: ${listed} sandboxes found, ${running} of them running`);
    expect(running).toBeGreaterThan(0);
  }),
);

it("a removal that a kill cut off is finished at the next look of another fleet", () =>
  onStage(async ({ backend, signal }, { home, fleetId }) => {
    const going = join(home, fleetId, "objects", ".going-0123456789abcdef0123-1");
    mkdirSync(going);
    writeFileSync(join(going, "object.json"), "{}");
    await backend.list({ consistent: false }, signal);
    expect(existsSync(going)).toBe(false);
  }));

async function killedFleet(settings: string, afterMs: number, compiled: string): Promise<void> {
  const args = ["--conditions=sandlot-source", PROGRAM, settings, JSON.stringify(await daemonFiles())];
  const env = { ...process.env, NODE_COMPILE_CACHE: compiled };
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"], env });
  const exited = once(child, "exit");
  // It says when it begins; loading takes longer than creating a sandbox.
  await once(child.stdout, "data");
  child.stdout.resume();
  world.timer(afterMs, () => child.kill("SIGKILL"));
  const [, signal] = await exited;
  expect(signal).toBe("SIGKILL");
}
