/** The composition root: the only file that constructs the parts of a fleet. */

import type { Generation, InstanceId, SandboxId } from "@sandlot/contract";
import { parseThreadId, SandlotError } from "@sandlot/contract";
import type { Backend } from "./backend/backend.ts";
import type { WorkspaceOwner } from "./backend/checkpoints.ts";
import type { Timelines } from "./backend/timelines.ts";
import { parseUser } from "./config/call-options.ts";
import { requireCapabilities } from "./config/capabilities.ts";
import { diskBudget } from "./config/disk-budget.ts";
import type { Settings } from "./config/settings.ts";
import type { CloseOptions, Fleet, ThreadKeyInput } from "./fleet.ts";
import { auditFleet } from "./inspect/audit.ts";
import { confirmDead } from "./inspect/confirm-dead.ts";
import { explain } from "./inspect/explain.ts";
import { poolReport } from "./inspect/pool-report.ts";
import { sandboxAbout } from "./inspect/sandbox-about.ts";
import { summarize } from "./inspect/summary.ts";
import { findThread, listThreads } from "./inspect/threads.ts";
import { usageOf } from "./inspect/usage.ts";
import { SandboxMaker } from "./lifecycle/acquire/maker.ts";
import { Opener } from "./lifecycle/acquire/opener.ts";
import { Admission } from "./lifecycle/admission/admission.ts";
import { automaticCheckpoints } from "./lifecycle/checkpoints/automatic-checkpoints.ts";
import { CheckpointCollection } from "./lifecycle/checkpoints/checkpoint-collection.ts";
import { ThreadCheckpoints } from "./lifecycle/checkpoints/thread-checkpoints.ts";
import { UnfinishedRestores } from "./lifecycle/checkpoints/unfinished-restores.ts";
import { Leases } from "./lifecycle/hold/leases.ts";
import { LivenessWatch } from "./lifecycle/hold/liveness-watch.ts";
import { RemoteLeaseTable } from "./lifecycle/hold/remote-lease-table.ts";
import { Slots } from "./lifecycle/hold/slots.ts";
import { LeaseExpiry } from "./lifecycle/housekeeping/lease-expiry.ts";
import { Loop } from "./lifecycle/housekeeping/loop.ts";
import { Peers } from "./lifecycle/housekeeping/peers.ts";
import { Reaper } from "./lifecycle/housekeeping/reaper.ts";
import { Reconciler } from "./lifecycle/housekeeping/reconciler.ts";
import { shutDown } from "./lifecycle/housekeeping/shutdown.ts";
import { PoolTally } from "./lifecycle/pool/pool-tally.ts";
import { WarmPool } from "./lifecycle/pool/warm-pool.ts";
import { findCertainly } from "./lifecycle/session/certain-find.ts";
import { Membership } from "./lifecycle/session/membership.ts";
import { throwIfElsewhere } from "./lifecycle/session/refusals.ts";
import { Destroyer } from "./lifecycle/stop/destroyer.ts";
import { Retirement, spotOf } from "./lifecycle/stop/retirement.ts";
import { FileChanges } from "./lifecycle/timeline/file-changes.ts";
import { RecordedSandboxes } from "./lifecycle/timeline/recorded-sandboxes.ts";
import { ThreadTimeline } from "./lifecycle/timeline/thread-timeline.ts";
import { recorderOf, type TimelineRecorder } from "./lifecycle/timeline/timeline-recorder.ts";
import { EventBus } from "./observe/event-bus.ts";
import { tracedAcquire, tracedBackend } from "./observe/traced.ts";
import { isTracing } from "./observe/tracing.ts";
import { Provider } from "./provider.ts";
import { Changes } from "./store/changes.ts";
import type { SandboxRecord } from "./store/record.ts";
import { reportingStore } from "./store/reporting-store.ts";
import type { Store } from "./store/store.ts";
import { UnderWay, within } from "./world/waiting.ts";
import type { Timer, World } from "./world/world.ts";

/** Delays the refill until the first command in the bound blank has run: making a blank takes a whole processor. */
const REFILL_DELAY_MS = 250;

/** The bytes of a purged thread go within ten minutes; a look that finds nothing due is cheap. */
const COLLECT_EVERY_MS = 60_000;
/** What it removes is a day old. */
const SWEEP_EVERY_MS = 3_600_000;

export interface FleetParts {
  readonly settings: Settings;
  readonly world: World;
  readonly store: Store;
  readonly backend: Backend;
  /** Where timelines are kept. Absent: none are. The fleet closes it. */
  readonly timelines?: Timelines;
  readonly instanceId?: InstanceId;
  /** The advertised address of this instance's gateway, which the instances of other engines tell their callers. */
  readonly address?: string;
  /** Why the pool is as it is, for a person. */
  readonly poolBecause?: string;
}

/** If the engine does not answer in time, the sandbox counts as current: unknown is not dead. */
async function isCurrent(backend: Backend, record: SandboxRecord, signal: AbortSignal): Promise<boolean> {
  const spot = spotOf(record);
  if (spot !== null && (await backend.workspaces.look(spot)).stale) return false;
  return record.ref === null || (await backend.probe(record.ref, signal)) !== "dead";
}

/** The generation, user and thread of a sandbox, if this instance holds it or has held it last. */
function whose(sandboxId: SandboxId, slots: Slots, recorded: RecordedSandboxes | null) {
  // Also while it is parked: its background processes go on.
  const whose = slots.byId(sandboxId) ?? recorded?.ownerOf(sandboxId);
  const generation = whose?.generation ?? (0 as Generation);
  return { sandboxId, generation, user: whose?.user ?? null, thread: whose?.thread ?? null };
}

function ownerOf({ user, thread }: ThreadKeyInput): WorkspaceOwner {
  return { user: parseUser(user), thread: parseThreadId(thread) };
}

/** Closes them one after the other. */
function closingOf(changes: FileChanges | null, recorder: TimelineRecorder | null) {
  if (recorder === null) return null;
  return {
    async close() {
      await changes?.close();
      await recorder.close();
    },
  };
}

function noMounts(backend: string): SandlotError {
  return new SandlotError("capability_missing", {
    backend,
    capability: "mounts",
    neededBy: "the mounts of an acquire",
  });
}

/** Builds a fleet from open parts. Closing the fleet closes them. */
export async function assembleFleet(given: FleetParts): Promise<Fleet> {
  const { settings, world } = given;
  const backend = tracedBackend(given.backend);
  for (const blueprint of Object.values(settings.blueprints))
    requireCapabilities(blueprint, backend.name, backend.capabilities, backend.limits);
  if (Object.keys(settings.pool).length > 0 && !backend.capabilities.has("late-binding")) {
    throw new SandlotError("capability_missing", {
      backend: backend.name,
      capability: "late-binding",
      neededBy: "pool",
    });
  }

  const instance = given.instanceId ?? (`i-${world.randomHex(8)}` as InstanceId);
  const lifetimeMs = settings.sessionLifetimeMs;
  const bus = new EventBus(world, instance, backend.engineId);
  const slots = new Slots();
  const store = reportingStore(given.store, (error) => membership.storeFailed(error));
  const changes = new Changes(world, store);
  const underWay = new UnderWay();
  const closing = new AbortController();
  const base = { settings, world, store, backend, bus, slots, changes, underWay, ending: closing.signal };
  const membership: Membership = new Membership({
    ...{ ...base, instance, lifetimeMs, engines: () => [backend.engineId], address: given.address ?? null },
    isCurrent: ({ record }) => {
      const late = () => new Error("no answer");
      const ask = (signal: AbortSignal) => isCurrent(backend, record, signal);
      return within(world, lifetimeMs / 8, undefined, late, ask).catch(() => true);
    },
  });
  const recorder = recorderOf({ world, bus, instance, settings, timelines: given.timelines });
  const sandboxes = recorder === null ? null : new RecordedSandboxes({ world, bus, recorder });
  const forget = async (owner: WorkspaceOwner & { readonly generation: number }) =>
    recorder?.purge(owner, owner.generation);
  const isOurs = (record: SandboxRecord) => membership.isOurs(record);
  const budgetOf = (blueprint: string) => diskBudget(settings.blueprints, blueprint);
  const isMaking = (sandboxId: SandboxId): boolean => maker.isMaking(sandboxId);
  const { stopTimeoutMs } = settings;
  const retirement = new Retirement({ ...base, membership, isMaking, stopTimeoutMs, budgetOf, forget });
  const leases = new Leases({
    ...{ ...base, membership, onGranted: () => expiry.granted() },
    checkpoint: (key, options) => checkpoints.take(key, options),
  });
  const maker = new SandboxMaker({ ...base, membership, retirement });
  const opener = new Opener({
    ...{ ...base, membership, retirement, maker },
    recorded: (attachment, record) => sandboxes?.recorded(attachment, record) ?? attachment,
    onLost: (slot, reason) => underWay.add(provider.lost(slot, reason)),
    onDisconnected: (slot) => void liveness.examine(slot),
  });
  const reaper = new Reaper({ ...base, membership, retirement });
  const expiry: LeaseExpiry = new LeaseExpiry({
    ...{ ...base, membership, leases },
    parkIfUnused: (slot) => provider.parkIfUnused(slot),
    poke: () => expiring.poke(),
  });
  const admission = new Admission({
    ...{ ...base, limits: settings.limits },
    isOurs,
    // After a pause of this process the choice may be outdated.
    evict: async (record) =>
      membership.trusted() && (await retirement.stopUnheld(record, "evicted")).kind === "stopping",
    idleAmong: (records) => reaper.idleAmong(records),
    giveBack: (record) => maker.giveBack(record),
  });
  const liveness = new LivenessWatch({
    ...{ ...base, patienceMs: settings.stopTimeoutMs },
    reattach: (slot, signal) => opener.reattach(slot, signal),
    stopDead: (record) => retirement.stopDead(record),
  });
  const checkpoints: ThreadCheckpoints = new ThreadCheckpoints({
    ...{ ...base, membership, retirement },
    onForked: (from, to) => recorder?.forked(from, to),
    restore: (owner, target, options) => destroyer.restore(owner, target, options),
  });
  const provider: Provider = new Provider({
    ...base,
    membership,
    leases,
    opener,
    maker,
    liveness,
    admission,
    retirement,
  });
  const graceMs = Math.max(settings.orphanTimeoutMs, lifetimeMs);
  const reconciler = new Reconciler({
    ...{ ...base, membership, retirement, graceMs },
    limits: (user) => admission.limits(user),
    patienceMs: settings.stopTimeoutMs,
  });
  const peers = new Peers({ ...base, membership, retirement, reconciler, isMaking, lifetimeMs });
  const pool = new WarmPool({ ...base, membership, admission, maker, retirement });
  const tally = new PoolTally(bus);
  const destroyer: Destroyer = new Destroyer({
    ...base,
    membership,
    retirement,
    endDeadSessions: () => peers.endDeadSessions(),
  });
  const collection = new CheckpointCollection({ ...base, membership });
  const restores = new UnfinishedRestores({ ...base, membership, retirement });
  const desk = new RemoteLeaseTable({ store, leases, onRenewed: (lease) => expiry.renewed(lease) });

  const automatic = automaticCheckpoints({ ...base, checkpoints });
  const changed = recorder === null ? null : new FileChanges({ ...base, checkpoints, recorder });
  const timeline = new ThreadTimeline({ ...base, recorder });
  const loop = (name: string, intervalMs: number, task: () => Promise<void>) =>
    new Loop({ name, intervalMs, task, world, bus });
  const everyMs = settings.housekeepingIntervalMs;
  const renewer = loop("renew", lifetimeMs / 4, () => membership.renew());
  const reconciling = loop("reconcile", everyMs, () => reconciler.reconcile());
  const pooling = loop("pool", everyMs, async () => {
    if (await pool.refill()) pooling.poke();
  });
  const reaping = loop("reap", everyMs, () => reaper.reap());
  const expiring = loop("leases", everyMs, () => expiry.expire());
  const tending = loop("peers", lifetimeMs / 4, () => peers.tend());
  const loops = [
    reconciling,
    pooling,
    tending,
    reaping,
    expiring,
    ...(automatic === null ? [] : [loop("checkpoints", everyMs, () => automatic.look())]),
    ...(backend.checkpoints === undefined ? [] : [loop("restores", everyMs, () => restores.finish())]),
    ...(recorder === null ? [] : [loop("timelines", SWEEP_EVERY_MS, () => recorder.timelines.sweep())]),
    ...(backend.capabilities.has("checkpoints") ? [loop("collect", COLLECT_EVERY_MS, () => collection.run())] : []),
    loop("leftovers", everyMs, () => retirement.retryLeftovers()),
    loop("slots", everyMs, async () => {
      leases.reportLeaks();
      await liveness.examineDisconnected();
    }),
  ];

  await membership.renew();
  if (membership.recovering) await peers.tend();
  for (const started of [renewer, ...loops]) started.start();
  pooling.poke();
  // Short-lived instances (CLI) also clean up dead peers.
  tending.poke();
  let refill: Timer | null = null;
  bus.on(() => {
    refill?.cancel();
    refill = world.timer(REFILL_DELAY_MS, () => pooling.poke(), { background: true });
  }, "sandbox-bound");
  const unwatch = backend.watch((event) => {
    if (event.type === "resync") reconciling.poke();
    else if (event.type === "died") void liveness.died(event.sandboxId, event.ref, event.cause);
    else bus.emit("sandboxId" in event ? { ...event, ...whose(event.sandboxId, slots, sandboxes) } : event);
  });

  const end = () => {
    unwatch();
    closing.abort(new SandlotError("fleet_closed", { operation: "asking the engine" }));
  };
  let closed: Promise<void> | null = null;
  const close = (options: CloseOptions = {}) => {
    destroyer.close();
    const parts = {
      ...base,
      membership,
      leases,
      retirement,
      loops,
      renewer,
      provider,
      end,
      automatic,
      timeline: closingOf(changed, recorder),
    };
    closed ??= shutDown(parts, options).finally(() => {
      expiry.close();
      refill?.cancel();
    });
    return closed;
  };
  const open = (operation: string) => {
    if (closed !== null) throw new SandlotError("fleet_closed", { operation });
  };
  return {
    instanceId: instance,
    events: bus,
    remoteLeases: desk,
    acquire: (request) => {
      if ((request?.mounts?.length ?? 0) > 0 && !backend.capabilities.has("mounts"))
        return Promise.reject(noMounts(backend.name));
      const acquire = () => (isTracing() ? tracedAcquire(provider, request) : provider.acquire(request));
      return request?.from === undefined ? acquire() : checkpoints.seedFor(request).then(acquire);
    },
    warm: (request) => provider.warm(request),
    about: (blueprint = "default") => sandboxAbout(settings, backend, blueprint),
    get: (sandboxId) => provider.get(sandboxId as SandboxId),
    async destroy(key, options) {
      open("destroy");
      const outcome = await destroyer.destroy(key, options);
      // A thread that has neither a sandbox nor files may still have a timeline.
      if (outcome === "absent" && options?.purge === true) await forget({ ...ownerOf(key), generation: 0 });
      return outcome;
    },
    async resetHome(key, options) {
      open("resetHome");
      return destroyer.resetHome(key, options);
    },
    async destroyBlank(sandboxId, options) {
      open("destroy");
      return destroyer.destroyBlank(sandboxId as SandboxId, options);
    },
    checkpoints,
    timeline,
    async usage(key, { signal } = {}) {
      open("usage");
      const either = AbortSignal.any(signal === undefined ? [base.ending] : [base.ending, signal]);
      return usageOf({ ...base, isOurs }, ownerOf(key), either);
    },
    async list() {
      open("list");
      return (await store.list()).map(summarize);
    },
    async find(key, { certain = false } = {}) {
      open("find");
      const [user, thread] = [parseUser(key.user), parseThreadId(key.thread)];
      const record = certain
        ? await findCertainly(store, { user, thread, engines: [backend.engineId] }, lifetimeMs)
        : await store.find(user, thread);
      return record === null ? null : summarize(record);
    },
    async pool() {
      open("pool");
      return poolReport({ ...base, isOurs, tally, because: given.poolBecause });
    },
    async audit({ signal } = {}) {
      open("audit");
      return auditFleet(
        { ...base, isOurs },
        AbortSignal.any(signal === undefined ? [base.ending] : [base.ending, signal]),
      );
    },
    async locate(key) {
      open("locate");
      if (!store.isShared) return "here";
      const [user, thread] = [parseUser(key.user), parseThreadId(key.thread)];
      const record = await store.find(user, thread);
      // One that is being made settles its thread when it is ready.
      if (record?.state === "ready" && record.engine === backend.engineId) return "here";
      const place = await store.locate({ user, thread, engines: [backend.engineId] });
      throwIfElsewhere(place.elsewhere, thread, lifetimeMs);
      // What a recovering store has of the thread may be on another engine.
      return place.isSettled && !place.recovering ? "here" : "unsettled";
    },
    async peers() {
      open("list");
      const others = (await store.sessions()).filter((session) => session.instance !== instance);
      return others.map(({ instance: peer, address, lastBeatAt, engines }) => {
        const otherEngines = engines.filter((engine) => !membership.isOurs({ engine }));
        return { instance: peer, address, lastBeatAt, engines, otherEngines };
      });
    },
    async listThreads({ user } = {}) {
      open("list");
      return listThreads(base, user === undefined ? null : parseUser(user));
    },
    async findThread({ user, thread }) {
      open("find");
      return findThread(base, { user: parseUser(user), thread: parseThreadId(thread) });
    },
    async explain(asked, options) {
      open("explain");
      return explain({ ...base, instance, isOurs }, asked, options);
    },
    async confirmDead(asked, by, { signal } = {}) {
      open("confirm-dead");
      const either = AbortSignal.any(signal === undefined ? [base.ending] : [base.ending, signal]);
      await confirmDead({ ...base, isOurs }, asked, by, either);
      for (const poked of [reconciling, tending]) poked.poke();
    },
    close,
    [Symbol.asyncDispose]: () => close(),
  };
}
