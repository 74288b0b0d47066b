/** Checkpoints of the target of a command: of a private fleet, or through a gateway. */

import { randomUUID } from "node:crypto";
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

/** A gateway tells the progress of a call as events, which name its request. */
export function checkpointsOfGateway(gateway: SandlotClient): TargetCheckpoints {
  const clientOf = ({ user }: ThreadName) => (user === undefined ? gateway : gateway.actingFor(user));
  const of = (name: ThreadName) => clientOf(name).checkpoints;
  const told = <T>(name: ThreadName, call: Long, ask: (named: NamedCall) => Promise<T>): Promise<T> =>
    withEvents(clientOf(name), call, ask);
  return {
    list: (name) => of(name).list(name.thread),
    take: (name, options, call) => told(name, call, (named) => of(name).take(name.thread, { ...options, ...named })),
    remove: (name, checkpoint) => of(name).remove(name.thread, checkpoint),
    verify: (name, checkpoint, call) =>
      told(name, call, (named) =>
        of(name).verify(name.thread, { ...named, ...(checkpoint !== undefined && { checkpoint }) }),
      ),
    export: (name, checkpoint, signal) => of(name).export(name.thread, checkpoint, { signal }),
    diff: (name, { paths, ...options }, call) =>
      told(name, call, (named) =>
        of(name).diff(name.thread, { ...options, ...named, ...(paths !== undefined && { paths: [...paths] }) }),
      ),
    restore: (name, { force, ...wish }, call) =>
      told(name, call, (named) => {
        if ("direction" in wish) return of(name)[wish.direction](name.thread, { force, ...named });
        const { checkpoint, paths } = wish;
        const some = paths === undefined ? {} : { paths: [...paths] };
        return of(name).restore(name.thread, checkpoint, { force, ...named, ...some });
      }),
    fork: (name, to, checkpoint, call) =>
      told(name, call, (named) =>
        clientOf(name).branchThread(name.thread, to, { ...named, ...(checkpoint !== undefined && { checkpoint }) }),
      ),
  };
}

interface NamedCall {
  readonly requestId: string;
  readonly signal: AbortSignal;
}

async function withEvents<T>(
  client: SandlotClient,
  { signal, onProgress }: Long,
  ask: (named: NamedCall) => Promise<T>,
): Promise<T> {
  const requestId = randomUUID();
  const ending = new AbortController();
  const follow = async () => {
    for await (const event of client.events({ signal: AbortSignal.any([signal, ending.signal]) })) {
      if (event?.type !== "checkpoint-progress" || event.requestId !== requestId) continue;
      const { phase, files, bytes, totalFiles } = event;
      onProgress({ phase: phase as CheckpointProgress["phase"], files, bytes, totalFiles });
    }
  };
  // Without its events the call is as good as with them; it says itself where the gateway is away.
  const following = follow().catch(() => undefined);
  try {
    return await ask({ requestId, signal });
  } finally {
    ending.abort(new Error("the call has ended"));
    await following;
  }
}
