/**
 * One home, with the local backend and then with an engine, or the other way round: a thread with a sandbox of the
 * other kind gets an error that says so, no sandbox ends for it, and workspaces move over.
 */

import { chmodSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isSandlotError } from "@sandlot/contract";
import { expect, it, onTestFinished } from "vitest";
import type { FleetConfig } from "../../../src/config/fleet-config.ts";
import type { Fleet } from "../../../src/fleet.ts";
import { openFleet } from "../../../src/open-fleet.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { describeOnEngine } from "./on-engine.ts";

const world = systemWorld();

describeOnEngine("a home that was another backend's", (_onEngine, { host, image }) => {
  it("says whose a sandbox is, ends it only when it is told to, and takes the workspace over", {
    timeout: 120_000,
  }, async () => {
    const { home, fleetId, local, docker } = oneHome({ host, image });
    const objects = () => readdirSync(join(home, fleetId, "objects"));
    onTestFinished(async () => {
      // A failed test leaves nothing behind.
      if (objects().length > 0) await using(local, (fleet) => fleet.destroy({ thread: "t" }, { force: true }));
      rmSync(home, { recursive: true, force: true });
    });
    const generation = await using(local, (fleet) => write(fleet, "kept"));
    await using(docker, async (fleet) => {
      const refused = await fleet.acquire({ thread: "t" }).catch((error: unknown) => error);
      expect(isSandlotError(refused, "sandbox_unreachable") && refused.details.problem).toMatch(
        /local backend.*sandlot rm/,
      );
      // Housekeeping has seen it meanwhile.
      await new Promise((resolve) => setTimeout(resolve, 600));
      expect((await fleet.find({ thread: "t" }))?.state).toBe("parked");
    });
    // It was left alone: the same sandbox, warm.
    expect(await using(local, (fleet) => read(fleet))).toMatchObject({ generation, note: "kept\n", kind: "same" });
    await using(docker, async (fleet) => {
      expect(await fleet.destroy({ thread: "t" })).toBe("stopped");
      expect(objects()).toEqual([]);
      const moved = await read(fleet);
      expect(moved).toMatchObject({ note: "kept\n", kind: "restored" });
      expect(moved.generation).toBeGreaterThan(generation);
      await fleet.destroy({ thread: "t" }, { purge: true });
    });
  });

  it("and the other way round says whose it is, and leaves it to the backend that can end it", {
    timeout: 120_000,
  }, async () => {
    const { home, local, docker } = oneHome({ host, image });
    onTestFinished(async () => {
      await using(docker, (fleet) => fleet.destroy({ thread: "t" }, { force: true, purge: true }));
      rmSync(home, { recursive: true, force: true });
    });
    const generation = await using(docker, (fleet) => write(fleet, "kept"));
    await using(local, async (fleet) => {
      const refused = await fleet.acquire({ thread: "t" }).catch((error: unknown) => error);
      expect(isSandlotError(refused, "sandbox_unreachable") && refused.details.problem).toMatch(/engine.*docker/);
      await new Promise((resolve) => setTimeout(resolve, 600));
      expect((await fleet.find({ thread: "t" }))?.state).toBe("parked");
    });
    expect(await using(docker, (fleet) => read(fleet))).toMatchObject({ generation, note: "kept\n", kind: "same" });
  });
});

/** A home, and the two configurations of its fleet. */
function oneHome(engine: { readonly host: string; readonly image: string }) {
  const home = mkdtempSync(join(tmpdir(), "sl-other-"));
  chmodSync(home, 0o755);
  const fleetId = `other-${world.randomHex(3)}`;
  const common = { home, fleetId, housekeepingIntervalMs: 200 };
  const local: FleetConfig = { ...common, backend: "local" };
  const docker: FleetConfig = { ...common, backend: "docker", docker: { ...engine, pull: "never" } };
  return { home, fleetId, local, docker };
}

async function using<T>(config: FleetConfig, run: (fleet: Fleet) => Promise<T>): Promise<T> {
  const fleet = await openFleet(config);
  try {
    return await run(fleet);
  } finally {
    await fleet.close();
  }
}

async function write(fleet: Fleet, text: string): Promise<number> {
  const lease = await fleet.acquire({ thread: "t" });
  await lease.sandbox.exec(`echo ${text} > note`);
  await lease.release();
  return lease.generation;
}

async function read(fleet: Fleet): Promise<{ generation: number; note: string; kind: string }> {
  const lease = await fleet.acquire({ thread: "t" });
  const { stdout } = await lease.sandbox.exec("cat note");
  await lease.release();
  return { generation: lease.generation, note: stdout, kind: lease.recovery.kind };
}
