/** The pool in words and numbers: which blanks are kept and why, what they cost, and how often a thread got one. */

import type { PoolReply } from "@sandlot/contract";
import type { Backend } from "../backend/backend.ts";
import type { Settings } from "../config/settings.ts";
import type { PoolTally } from "../lifecycle/pool/pool-tally.ts";
import { isBlank, type SandboxRecord } from "../store/record.ts";
import type { Store } from "../store/store.ts";
import { within } from "../world/waiting.ts";
import type { World } from "../world/world.ts";

export interface PoolReportParts {
  readonly settings: Settings;
  readonly store: Store;
  readonly backend: Backend;
  readonly world: World;
  readonly tally: PoolTally;
  readonly isOurs: (record: SandboxRecord) => boolean;
  /** Why the pool is as it is, where no key of the configuration says it. */
  readonly because: string | undefined;
  readonly ending: AbortSignal;
}

const MEMORY_PATIENCE_MS = 2_000;

export async function poolReport(parts: PoolReportParts): Promise<PoolReply> {
  const { settings, store, tally, isOurs } = parts;
  const records = (await store.list()).filter((record) => isOurs(record) && record.thread === null);
  const blueprints = await Promise.all(
    Object.entries(settings.pool).map(async ([blueprint, target]) => {
      const hash = settings.blueprints[blueprint]?.hash;
      const own = records.filter(({ blueprintHash }) => blueprintHash === hash);
      const ready = own.filter(isBlank);
      const coming = own.filter(({ state }) => state === "creating").length;
      return { blueprint, target, ready: ready.length, coming, memoryBytes: await memoryOf(parts, ready) };
    }),
  );
  return { summary: summaryOf(parts), blueprints, hits: tally.hits, misses: tally.misses };
}

function summaryOf({ settings, because = "`pool` is not configured." }: PoolReportParts): string {
  const kept = Object.entries(settings.pool).filter(([, count]) => count > 0);
  const what = kept.map(([name, count]) => `${count} of ${name}`).join(", ");
  return `${kept.length === 0 ? "No blank is kept ready." : `Blanks kept ready: ${what}.`} ${because}`;
}

/** `null` where one of them is not counted. */
async function memoryOf(
  { backend, world, ending }: PoolReportParts,
  blanks: readonly SandboxRecord[],
): Promise<number | null> {
  const late = () => new Error("no answer");
  const sizes = await Promise.all(
    blanks.map(async ({ ref }) => {
      if (ref === null || backend.memoryOf === undefined) return null;
      const ask = async (signal: AbortSignal) => (await backend.memoryOf?.(ref, signal)) ?? null;
      return within(world, MEMORY_PATIENCE_MS, ending, late, ask).catch(() => null);
    }),
  );
  return sizes.reduce<number | null>((sum, size) => (sum === null || size === null ? null : sum + size), 0);
}
