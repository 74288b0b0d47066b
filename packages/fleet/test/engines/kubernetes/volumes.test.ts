/** A shared claim on a real cluster: its trial from a pod, and workspaces over their disk limit. */

import type { SandboxId } from "@sandlot/contract";
import { expect } from "vitest";
import type { EngineEvent } from "../../../src/backend/backend.ts";
import { hashBlueprint } from "../../../src/backend/blueprint.ts";
import { BackendStage } from "../../../src/testing/backend-suite/stage.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { sleep } from "../../../src/world/waiting.ts";
import { onCluster } from "./cluster-tools.ts";
import { blueprint, openHarness, sharedClaim } from "./kubernetes-harness.ts";

const world = systemWorld();
const NEVER = new AbortController().signal;
const MIB = 1024 * 1024;
const EVENT_MS = 90_000;

onCluster("a pod and this process try the claim, and leave nothing on it", null, async () => {
  const harness = await openHarness({ workspaces: sharedClaim, tries: true });
  const problems: string[] = [];
  harness.backend.watch((event) => event.type === "housekeeping-failed" && problems.push(event.problem));
  const stage = new BackendStage(harness, blueprint, expect);
  try {
    await stage.make(null);
    expect(harness.backend.capabilities.has("late-binding")).toBe(true);
    expect(problems).toEqual([]);
    const { readdirSync } = await import("node:fs");
    const { root = "" } = harness.settings().kubernetes.workspaces;
    expect(readdirSync(`${root}/${harness.fleetId}`).filter((name) => name.startsWith("trial"))).toEqual([]);
    await stage.clear();
  } finally {
    await harness.dispose();
  }
});

onCluster("a workspace over its limit is told, and one over twice the limit is ended for that", null, async () => {
  const harness = await openHarness({ workspaces: sharedClaim });
  try {
    const limited = { ...blueprint, limits: { diskBytes: 64 * MIB } };
    const named = { name: "default", hash: hashBlueprint("kubernetes", limited), blueprint: limited };
    const backend = await harness.open({}, { blueprints: { default: named } });
    const events: EngineEvent[] = [];
    backend.watch((event) => events.push(event));
    const stage = new BackendStage({ ...harness, backend }, limited, expect);
    const made = await stage.make();
    const { sandbox } = await stage.attach(made.target);
    await sandbox.exec("head -c 140m /dev/zero > /mnt/user-data/workspace/fill");
    const { sandboxId } = made.target;
    const hit = await told(events, "limit-hit", sandboxId);
    expect(hit).toMatchObject({ limit: "disk", because: expect.stringMatching(/140 MiB of the 64 MiB/) });
    expect(await told(events, "died", sandboxId)).toMatchObject({ cause: "disk-limit" });
    await stage.clear();
  } finally {
    await harness.dispose();
  }
});

async function told(events: readonly EngineEvent[], type: EngineEvent["type"], sandboxId: SandboxId) {
  const until = world.monotonicMs() + EVENT_MS;
  for (;;) {
    const found = events.find((event) => event.type === type && "sandboxId" in event && event.sandboxId === sandboxId);
    if (found !== undefined) return found;
    if (world.monotonicMs() > until) throw new Error(`there was no event ${type}: ${JSON.stringify(events)}`);
    await sleep(world, 200, NEVER);
  }
}
