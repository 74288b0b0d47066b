/**
 * The living sandboxes of a fleet: without those that ended by themselves unobserved and whose records still exist.
 *
 * Unknown is not dead: if the engine does not respond in time, every record counts as living.
 */

import type { SandboxSummary, ThreadSummary } from "@sandlot/contract";
import type { Fleet } from "../fleet.ts";
import { within } from "../world/waiting.ts";
import type { World } from "../world/world.ts";

/** How long a list waits for the engine. Longer delays a reader; shorter relies on records. */
const PATIENCE_MS = 2_000;

export async function livingSandboxes(
  fleet: Pick<Fleet, "list" | "audit">,
  world: World,
): Promise<readonly SandboxSummary[]> {
  const gone = await goneSandboxes(fleet, world);
  return (await fleet.list()).filter((sandbox) => !hasEnded(sandbox, gone));
}

/** The same for threads: one whose sandbox has ended by itself has files, but no sandbox. */
export async function livingThreads(
  fleet: Pick<Fleet, "listThreads" | "audit">,
  world: World,
  filter: { readonly user?: string },
): Promise<readonly ThreadSummary[]> {
  const gone = await goneSandboxes(fleet, world);
  const threads = await fleet.listThreads(filter);
  return threads.map((thread) =>
    thread.sandbox !== null && hasEnded(thread.sandbox, gone) ? { ...thread, sandbox: null } : thread,
  );
}

/** The holder of a sandbox reports its loss. */
function hasEnded({ sandboxId, state }: SandboxSummary, gone: ReadonlySet<string>): boolean {
  return (state === "parked" || state === "blank") && gone.has(sandboxId);
}

async function goneSandboxes(fleet: Pick<Fleet, "audit">, world: World): Promise<ReadonlySet<string>> {
  const late = () => new Error("no answer");
  try {
    const findings = await within(world, PATIENCE_MS, undefined, late, (signal) => fleet.audit({ signal }));
    return new Set(
      findings.flatMap(({ kind, sandboxId }) => (kind === "gone" && sandboxId !== null ? [sandboxId] : [])),
    );
  } catch {
    return new Set();
  }
}
