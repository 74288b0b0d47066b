/** What a worker can be asked for. */

import type { CheckpointChange } from "@sandlot/contract";
import { collect } from "../collect/collect.ts";
import { remove } from "../collect/remove.ts";
import { diff } from "../compare/diff.ts";
import type { Context } from "../context.ts";
import { exportCheckpoint } from "../export/export.ts";
import { check, verify } from "../restore/check.ts";
import { restore } from "../restore/restore.ts";
import { seed } from "../seed/seed.ts";
import { take } from "../take/take.ts";
import type { Jobs } from "./messages.ts";

/** What a job says before its result. */
export interface Outlet {
  problem(problem: string): void;
  changes(changes: CheckpointChange[]): void;
  /** Resolves when the caller wants the next one. */
  piece(bytes: Uint8Array): Promise<void>;
}

type Job<Name extends keyof Jobs> = (context: Context, outlet: Outlet, ...args: Jobs[Name]) => Promise<unknown>;

export const jobs: { readonly [Name in keyof Jobs]: Job<Name> } = {
  take: (context, _, owner, request) => take(context, owner, request),
  diff,
  check: (context, _, owner, target, budget) => check(context, owner, target, budget),
  restore: (context, _, spot, target, budget) => restore(context, spot, target, budget),
  seed: (context, _, source, to, budget) => seed(context, source, to, budget),
  remove: (context, _, owner, checkpoint) => remove(context, owner, checkpoint),
  verify: (context, _, owner, checkpoint) => verify(context, owner, checkpoint),
  export: exportCheckpoint,
  collect: (context, outlet) => collect(context, outlet.problem),
};
