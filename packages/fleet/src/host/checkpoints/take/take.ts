/** Takes a checkpoint of a thread's present workspace. One at a time for each thread; the others wait for their turn. */

import { constants } from "node:fs";
import type { Taken, TakeOptions } from "../../../backend/checkpoints.ts";
import { isMissing } from "../../../world/disk-trouble.ts";
import { type Context, type Owner, type Store, threadOf, withStore } from "../context.ts";
import { asCheckpoint, idOfRequest, readRecords } from "../records.ts";
import { calls } from "../store/calls.ts";
import { inTurn, shared } from "../store/store-locks.ts";
import { checkLabels } from "./bounds.ts";
import { snapshot } from "./snapshot.ts";

export type TakeRequest = Pick<TakeOptions, "cause" | "generation" | "environment" | "writers"> & {
  readonly label: string | null;
  /** `null`: as in the checkpoint before. */
  readonly leftOut: readonly string[] | null;
  readonly verify: boolean;
  readonly requestId: string | null;
};

export function take(context: Context, owner: Owner, request: TakeRequest): Promise<Taken> {
  return withStore(context, owner, (store) =>
    inTurn(store.paths.turns, owner.thread, context.world, () =>
      shared(store.paths.lock, context.world, () => takeInTurn(context, store, owner, request)),
    ),
  );
}

async function takeInTurn(context: Context, store: Store, owner: Owner, request: TakeRequest): Promise<Taken> {
  const thread = threadOf(context, owner);
  const repeated = request.requestId === null ? null : idOfRequest(thread.key, "take", request.requestId);
  const records = readRecords(thread.directory);
  const done = records.find(({ id }) => id === repeated);
  if (done !== undefined) return { kind: "taken", checkpoint: asCheckpoint(done, records.at(-1)) };
  if (request.label !== null) checkLabels(context, owner, records);
  const handle = await context.workspaces.locate(owner);
  if (handle === null) return { kind: "nothing" };
  try {
    const root = openWorkspace(handle.path);
    if (root === null) return { kind: "nothing" };
    try {
      const id = repeated ?? context.world.randomHex(8);
      const excluded = request.leftOut ?? records.at(-1)?.excluded ?? context.options.excluded;
      const taken = await snapshot(context, { store, owner, thread, records, root }, { ...request, excluded, id });
      if (taken === null) return { kind: "nothing" };
      return { kind: taken.isNew ? "taken" : "unchanged", checkpoint: asCheckpoint(taken.record, taken.record) };
    } finally {
      calls.close(root);
    }
  } finally {
    handle.close();
  }
}

/** A descriptor to read from, for the path of one that was only found. `null`: it is gone. */
export function openWorkspace(path: string): number | null {
  try {
    return calls.open(`${path}/.`, constants.O_RDONLY | constants.O_DIRECTORY);
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
}
