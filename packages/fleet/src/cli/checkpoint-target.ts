/** Checkpoints of the target of a command: of a private fleet, or through a gateway. */

import type { SandlotClient } from "@sandlot/client";
import type { Checkpoint, CheckpointDiff, SeededThreadReply } from "@sandlot/contract";
import type {
  CheckpointProgress,
  DiffOptions,
  Fleet,
  RestoredCheckpoint,
  TakenCheckpoint,
  VerifiedCheckpoints,
} from "../fleet.ts";
import type { ThreadName } from "./target.ts";

export interface Long {
  readonly signal: AbortSignal;
  /** Only of a private fleet: a gateway tells its events. */
  readonly onProgress: (progress: CheckpointProgress) => void;
}

export interface TargetCheckpoints {
  list(name: ThreadName): Promise<readonly Checkpoint[]>;
  take(
    name: ThreadName,
    options: { label?: string; quiesce?: boolean; verify?: boolean },
    call: Long,
  ): Promise<TakenCheckpoint>;
  remove(name: ThreadName, checkpoint: string): Promise<void>;
  verify(name: ThreadName, checkpoint: string | undefined, call: Long): Promise<VerifiedCheckpoints>;
  export(name: ThreadName, checkpoint: string, signal: AbortSignal): AsyncIterable<Uint8Array>;
  diff(
    name: ThreadName,
    options: Pick<DiffOptions, "from" | "to" | "texts" | "paths">,
    call: Long,
  ): Promise<CheckpointDiff>;
  restore(name: ThreadName, wish: RestoreWish, call: Long): Promise<RestoredCheckpoint>;
  fork(
    name: ThreadName,
    to: string,
    checkpoint: string | undefined,
    call: Long,
  ): Promise<Omit<SeededThreadReply, "thread">>;
}

/** A checkpoint to bring back, or where to go from the present. */
export type RestoreWish = { readonly force: boolean } & (
  | { readonly checkpoint: string; readonly paths?: readonly string[] }
  | { readonly direction: "undo" | "redo" }
);

export function checkpointsOfFleet({ checkpoints }: Fleet): TargetCheckpoints {
  const keyOf = ({ thread, user }: ThreadName) => ({ thread, ...(user && { user }) });
  return {
    list: (name) => checkpoints.list(keyOf(name)),
    take: (name, options, call) => checkpoints.take(keyOf(name), { ...options, ...call }),
    remove: (name, checkpoint) => checkpoints.remove(keyOf(name), checkpoint),
    verify: (name, checkpoint, call) =>
      checkpoints.verify(keyOf(name), { ...call, ...(checkpoint !== undefined && { checkpoint }) }),
    export: (name, checkpoint, signal) => checkpoints.export(keyOf(name), checkpoint, { signal }),
    diff: (name, options, call) => checkpoints.diff(keyOf(name), { ...options, ...call }),
    restore(name, { force, ...wish }, call) {
      if ("direction" in wish) return checkpoints[wish.direction](keyOf(name), { force, ...call });
      const { checkpoint, paths } = wish;
      return checkpoints.restore(keyOf(name), checkpoint, { force, ...call, ...(paths !== undefined && { paths }) });
    },
    async fork(name, to, checkpoint, call) {
      const { fileCount, sizeBytes, skipped } = await checkpoints.fork(keyOf(name), to, {
        ...call,
        ...(checkpoint !== undefined && { checkpoint }),
      });
      return { fileCount, sizeBytes, skipped: [...skipped] };
    },
  };
}

export function checkpointsOfGateway(gateway: SandlotClient): TargetCheckpoints {
  const of = ({ user }: ThreadName) => (user === undefined ? gateway : gateway.actingFor(user)).checkpoints;
  return {
    list: (name) => of(name).list(name.thread),
    take: (name, options, { signal }) => of(name).take(name.thread, { ...options, signal }),
    remove: (name, checkpoint) => of(name).remove(name.thread, checkpoint),
    verify: (name, checkpoint, { signal }) =>
      of(name).verify(name.thread, { signal, ...(checkpoint !== undefined && { checkpoint }) }),
    export: (name, checkpoint, signal) => of(name).export(name.thread, checkpoint, { signal }),
    diff: (name, { paths, ...options }, { signal }) =>
      of(name).diff(name.thread, { ...options, signal, ...(paths !== undefined && { paths: [...paths] }) }),
    restore(name, { force, ...wish }, { signal }) {
      if ("direction" in wish) return of(name)[wish.direction](name.thread, { force, signal });
      const { checkpoint, paths } = wish;
      const some = paths === undefined ? {} : { paths: [...paths] };
      return of(name).restore(name.thread, checkpoint, { force, signal, ...some });
    },
    fork({ thread, user }, to, checkpoint) {
      const client = user === undefined ? gateway : gateway.actingFor(user);
      return client.branchThread(thread, to, checkpoint === undefined ? {} : { checkpoint });
    },
  };
}
