/**
 * A fleet for tests of tools and adapters, on any backend, with what such tests ask of it: who holds what, and a
 * sandbox that dies at a bad moment. Closing it fails when a lease was left behind.
 */

import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FleetEvent } from "@sandlot/contract";
import { expect } from "vitest";
import { MemoryEngine } from "../../../fleet/src/backends/memory/engine.ts";
import { type Fleet, openFleet } from "../../../fleet/src/index.ts";

export interface ToolStage extends AsyncDisposable {
  readonly fleet: Fleet;
  readonly events: readonly FleetEvent[];
  /** Leases that somebody has now. */
  leaseCount(): number;
  /** The sandbox of a thread dies by itself. */
  kill(thread: string, user?: string): Promise<void>;
}

export type StageBackend = "memory" | "local";

/** The backends on which the suites run, from SANDLOT_TEST_BACKENDS. */
export const STAGE_BACKENDS = (process.env.SANDLOT_TEST_BACKENDS ?? "memory").split(",") as readonly StageBackend[];

export async function openToolStage(backend: StageBackend = "memory"): Promise<ToolStage> {
  const home = mkdtempSync(join(tmpdir(), "sandlot-tools-"));
  const fleet = await openFleet({ home, backend, store: { type: "memory" } }).catch((error: unknown) => {
    rmSync(home, { recursive: true, force: true });
    throw error;
  });
  const events: FleetEvent[] = [];
  fleet.events.on((event) => events.push(event));
  const count = (type: FleetEvent["type"]) => events.filter((event) => event.type === type).length;
  const leaseCount = () => count("lease-acquired") - count("lease-released");
  return {
    fleet,
    events,
    leaseCount,
    async kill(thread, user = "default") {
      const record = (await fleet.list()).find((line) => line.thread === thread && line.user === user);
      if (record === undefined) throw new Error(`There is no sandbox of thread ${thread}.`);
      if (backend === "memory") killInMemory(home, record.sandboxId);
      else await killLocal(home, record.sandboxId);
    },
    async [Symbol.asyncDispose]() {
      const left = leaseCount();
      await fleet.close({ destroy: true, drainMs: 0 });
      rmSync(home, { recursive: true, force: true });
      expect(left, "leases left behind").toBe(0);
    },
  };
}

function killInMemory(home: string, sandboxId: string): void {
  const engine = MemoryEngine.shared(home);
  const object = engine.objects().find(({ labels }) => labels.sandboxId === sandboxId);
  if (object === undefined) throw new Error(`There is no sandbox ${sandboxId}.`);
  engine.kill(object.ref);
}

/** Its first process, and with it all others. Comes back when it is dead. */
async function killLocal(home: string, sandboxId: string): Promise<void> {
  const [fleetId = ""] = readdirSync(home).filter((name) => name.startsWith("fleet-"));
  const objects = join(home, fleetId, "objects");
  const object = readdirSync(objects).find((name) => name.startsWith(`${sandboxId}-`));
  if (object === undefined) throw new Error(`There is no sandbox ${sandboxId}.`);
  const { init } = JSON.parse(readFileSync(join(objects, object, "process.json"), "utf8")) as { init: { pid: number } };
  process.kill(init.pid, "SIGKILL");
  while (existsSync(`/proc/${init.pid}`)) await new Promise((resolve) => setTimeout(resolve, 5));
}
