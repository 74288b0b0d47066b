/** What a worker can be asked for. */

import type { CheckpointChange } from "@sandlot/contract";
import { collect } from "../collect/collect.ts";
import { remove } from "../collect/remove.ts";
import type { Context } from "../context.ts";
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

export const jobs: { readonly [Name in keyof Jobs]?: Job<Name> } = {
  take: (context, _, owner, request) => take(context, owner, request),
  remove: (context, _, owner, checkpoint) => remove(context, owner, checkpoint),
  collect: (context, outlet) => collect(context, outlet.problem),
};
