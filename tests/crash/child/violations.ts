/**
 * Violations of a child, each planted by `--plant` to check that it is found. They bypass the fleet, through the
 * engine, or break a promise to main. Test code only.
 */

import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Generation, SandboxId, ThreadId, Token, UserId } from "@sandlot/contract";
import { threadKeyOf } from "../../../packages/fleet/src/backend/labels.ts";
import type { Settings } from "../../../packages/fleet/src/config/settings.ts";
import type { Fleet } from "../../../packages/fleet/src/fleet.ts";
import type { CrashBackend } from "../backend-client/crash-backend.ts";
import { JOURNAL, lineOf } from "../backend-client/journal-sandbox.ts";
import type { Plant } from "../plants.ts";
import { FLEET, ownerOf, THREADS } from "../settings.ts";
import type { Report } from "./report.ts";

interface Scene {
  readonly fleet: Fleet;
  readonly backend: CrashBackend;
  readonly settings: Settings;
  readonly report: Report;
}

export async function misbehave(plant: Plant | null, scene: Scene): Promise<void> {
  const violation = plant === null ? undefined : MISDEEDS[plant];
  if (violation === undefined) return;
  while (true) {
    // Each may fail because of other children; then it is retried.
    await violation(scene).catch(() => {});
    await sleep(100);
  }
}

const MISDEEDS: Partial<Record<Plant, (scene: Scene) => Promise<void>>> = {
  async double({ fleet, backend, settings }) {
    const [thread] = THREADS;
    if (thread === undefined) return;
    await using lease = await fleet.acquire(thread);
    const owner = ownerOf(thread);
    await lease.sandbox.files.append(JOURNAL, lineOf({ owner, token: `first-${randomBytes(4).toString("hex")}` }));
    const second = await secondSandbox(backend, settings, lease.generation);
    await second.append(JOURNAL, lineOf({ owner, token: `second-${randomBytes(4).toString("hex")}` }));
  },
  async "two-threads"({ fleet }) {
    const [one, two] = THREADS;
    if (one === undefined || two === undefined) return;
    await using lease = await fleet.acquire(one);
    await lease.sandbox.files.append(
      JOURNAL,
      lineOf({ owner: ownerOf(one), token: `own-${randomBytes(4).toString("hex")}` }),
    );
    await lease.sandbox.files.append(
      JOURNAL,
      lineOf({ owner: ownerOf(two), token: `other-${randomBytes(4).toString("hex")}` }),
    );
  },
  async "early-destroy"({ fleet, backend }) {
    const [thread] = THREADS;
    if (thread === undefined) return;
    await using lease = await fleet.acquire(thread);
    const never = new AbortController().signal;
    const [object] = await backend.list({ consistent: true, sandboxId: lease.sandbox.id }, never);
    if (object !== undefined) await backend.destroy(object.ref, never);
  },
  async hang({ report }) {
    report.note({ note: "start", call: 1_000_000, kind: "acquire", owner: "planted", deadlineMs: 100 });
    await new Promise(() => {});
  },
};

async function secondSandbox(backend: CrashBackend, settings: Settings, generation: Generation) {
  const [{ user, thread }] = THREADS as unknown as [{ user: UserId; thread: ThreadId }];
  const named = settings.blueprints.default;
  if (named === undefined) throw new Error("there is no default blueprint");
  const sandboxId = randomBytes(10).toString("hex") as SandboxId;
  const token = randomBytes(24).toString("hex") as Token;
  const never = new AbortController().signal;
  const labels = {
    fleet: FLEET,
    sandboxId,
    generation,
    threadKey: threadKeyOf(user, thread),
    blueprintHash: named.hash,
  };
  const marker = { sandboxId, user, thread, generation, token, blueprint: named.name, blueprintHash: named.hash };
  const { ref } = await backend.create({ labels, generation, token, blueprint: named.blueprint, marker }, never);
  const { sandbox } = await backend.attach({ ref, sandboxId, generation, token }, never);
  return sandbox.files;
}
