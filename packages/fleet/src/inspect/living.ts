/**
 * The sandboxes of a fleet as they are: without those that ended by themselves while nobody was watching, and whose
 * records nobody has cleared up yet.
 *
 * Unknown is not dead: where the engine does not answer in time, everything that has a record is there.
 */

import type { SandboxSummary, ThreadSummary } from "@sandlot/contract";
import type { Fleet } from "../fleet.ts";
import { within } from "../world/waiting.ts";
import type { World } from "../world/world.ts";

/** How long a list waits for the engine. Longer would keep whoever only wants to look; shorter would believe records. */
const PATIENCE_MS = 2_000;

export async function livingSandboxes(
  fleet: Pick<Fleet, "list" | "audit">,
  world: World,
): Promise<readonly SandboxSummary[]> {
  const gone = await goneSandboxes(fleet, world);
  return (await fleet.list()).filter((sandbox) => !hasEnded(sandbox, gone));
}

/** The same for threads: one whose sandbox has ended by itself has its files, and no sandbox. */
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

/** What somebody holds is told to be lost by its holder. */
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
