/** Faults for the checks. Each plants one wrong state and is named after the check that must notice it. */

import {
  type EngineRef,
  type Generation,
  type LeaseId,
  type SandboxId,
  SandlotError,
  type Token,
} from "@sandlot/contract";
import type { WorkspaceSpot } from "../../../packages/fleet/src/backend/backend.ts";
import type { RestoreTarget } from "../../../packages/fleet/src/backend/checkpoints.ts";
import type { SandboxRecord } from "../../../packages/fleet/src/store/record.ts";
import { historyOf } from "../engine/sim-checkpoints.ts";
import { EPOCH_MS } from "../process/host.ts";
import { type Bench, BOX, ENGINE, GENERATION, OWNER, REF, THREAD, TOKEN, USER } from "./check-harness.ts";
import type { Invariant } from "./invariants.ts";

const LATER = (GENERATION + 10) as Generation;
const OTHER_BOX = "other-box" as SandboxId;
const SPOT: WorkspaceSpot = { user: USER, thread: THREAD, sandboxId: BOX, generation: GENERATION, place: "home" };
const LEASE = "remote" as LeaseId;
const row = { generation: GENERATION, purpose: "", holder: "", acquiredAt: 0, ttlMs: 5_000, beat: 1 };
const rows = { [LEASE]: row } as unknown as SandboxRecord["leases"];
const TARGET: RestoreTarget = { checkpoint: "c1", requestId: "r1", as: "restore" };
const RESTORING = { state: "stopping", reason: "restored", restore: TARGET } as Partial<SandboxRecord>;

function halfRestored({ ledger, scheduler }: Bench): void {
  const unfinished = { target: TARGET, generation: GENERATION, since: scheduler.now };
  Object.assign(historyOf(ledger, OWNER), { unfinished, checkpoints: new Map([["c1", new Set()]]) });
}

/** Faults for the checks of the store, the engine, leases and liveness. */
export const DEEDS: Partial<Record<Invariant, (bench: Bench) => void>> = {
  "only-allowed-moves": (b) => {
    b.has({ state: "stopping", actor: b.one.id, reason: "orphaned" });
    b.change(b.one, "publish", {}, { state: "ready", actor: null });
  },
  "revision-grows": (b) => {
    const { revision } = b.has();
    b.change(b.one, "hold", {}, { holders: b.hold(), revision });
  },
  "identity-is-kept": (b) => {
    b.has();
    b.change(b.one, "hold", {}, { token: "another" as Token, holders: b.hold() });
  },
  "actor-exactly-while-acting": (b) => {
    b.has();
    b.change(b.one, "hold", {}, { actor: b.one.id, holders: b.hold() });
  },
  "one-record-per-thread": (b) => {
    b.has();
    b.has({ sandboxId: OTHER_BOX });
  },
  "generation-never-repeats": (b) => {
    b.step(b.one, "take", [{}], () => undefined, { kind: "blank", generation: GENERATION });
    b.step(b.one, "take", [{}], () => undefined, { kind: "blank", generation: GENERATION });
  },
  "generation-grows-per-thread": (b) => {
    b.truth.thread(OWNER).latestLeased = LATER;
    b.has({ state: "creating", actor: b.one.id });
  },
  "fleet-limit": (b) => {
    for (const name of ["1", "2", "3"]) {
      b.has({ sandboxId: name as SandboxId, state: "creating", actor: b.one.id, user: null, thread: null });
    }
  },
  "user-limit": (b) => {
    b.has({ state: "creating", actor: b.one.id });
    b.has({ sandboxId: OTHER_BOX, thread: "t2" as SandboxRecord["thread"], state: "creating", actor: b.one.id });
  },
  "held-is-not-stopped": (b) => {
    b.has({ holders: b.hold(b.other), parkedAt: null }, b.other);
    b.stop("unheld", "evicted");
  },
  "forced-only-when-asked": (b) => {
    b.has();
    b.stop("force", "destroyed");
  },
  "dead-is-dead": (b) => {
    b.object();
    b.has();
    b.stop("dead", "crashed");
  },
  "stop-reason-is-true": (b) => {
    b.has();
    b.stop("unheld", "surplus");
  },
  "idle-only-after-timeout": (b) => {
    b.has();
    b.at(9_000).stop("unheld", "idle");
  },
  "idle-only-without-doubt": (b) => {
    b.has();
    b.one.doubtedAt = 8_000;
    b.at(12_000).stop("unheld", "idle");
  },
  "idle-not-while-busy": (b) => {
    b.object().busySince = 0;
    b.has();
    b.at(11_000).stop("unheld", "idle");
  },
  "expired-only-after-lifetime": (b) => {
    b.has();
    b.at(40_000).stop("unheld", "expired");
  },
  "age-is-kept": (b) => {
    b.has({ state: "creating", actor: b.one.id });
    b.tables.host.step(3_600_000);
    b.tables.empty();
    b.at(10_000).has();
  },
  "parked-since-is-true": (b) => {
    b.has({ holders: b.hold(), parkedAt: null });
    b.at(5_000).change(b.one, "unhold", {}, { holders: {}, parkedAt: EPOCH_MS });
  },
  "blanks-go-first": (b) => {
    b.has({ sandboxId: OTHER_BOX, user: null, thread: null });
    b.has({ user: "bob" as SandboxRecord["user"] });
    b.settings.limits.maxPerUser > 0 && Object.assign(b.settings.limits, { maxPerUser: 0 });
    b.at(20_000).stop("unheld", "evicted");
  },
  "hold-dropped-only-by-its-owner": (b) => {
    b.object();
    b.has({ holders: b.hold(), parkedAt: null });
    b.held();
    b.change(b.one, "unhold", {}, { holders: {}, parkedAt: EPOCH_MS });
  },
  "hold-is-takers-own": (b) => {
    b.has();
    b.change(b.one, "hold", {}, { holders: b.hold(b.other), parkedAt: null });
  },
  "remote-lease-ends-in-time": (b) => {
    b.has();
    b.change(b.one, "grantLease", {}, { leases: rows, parkedAt: null });
    b.at(1_000).change(b.one, "expireLease", LEASE, { leases: {}, parkedAt: EPOCH_MS + 1_000 });
  },
  "takeover-only-from-the-dead": (b) => {
    b.has({ state: "stopping", actor: b.other.id, reason: "orphaned" }, b.other);
    b.change(b.one, "takeOver", {}, { actor: b.one.id });
  },
  "bury-only-the-silent": (b) => {
    b.at(5_000).step(b.one, "endDeadSession", [b.other.id, 1], (tables) => tables.deleteSession(b.other.id));
  },
  "bury-only-with-sight": (b) => {
    b.one.sightBrokenAt = 8_000;
    b.at(12_000).step(b.one, "endDeadSession", [b.other.id, 1], (tables) => tables.deleteSession(b.other.id));
  },
  "nothing-new-while-recovering": (b) => {
    b.has();
    b.tables.putMeta({ ...b.tables.meta(), recovering: true });
    b.change(b.one, "hold", {}, { holders: b.hold(), parkedAt: null });
  },
  "recovery-lasts-a-lifetime": (b) => {
    b.object();
    b.tables.empty();
    b.at(3_000).step(b.one, "endRecovery", ["epoch"], (tables) => tables.endRecovery(ENGINE));
  },
  "holders-come-back": (b) => {
    b.object();
    const held = b.held();
    b.tables.empty();
    b.at(1_000).lease.lost(held, "session-lost");
  },
  "adopted-through-marker": (b) => {
    b.object();
    const request = { ...SPOT, token: "another", ref: REF };
    b.step(b.one, "adopt", [request], (tables) => tables.putRecord(b.record()));
  },
  "condemned-only-unknown": (b) => {
    b.object(b.other);
    b.at(1_000).has({ state: "stopping", actor: b.one.id, reason: "orphaned" });
  },
  "condemned-not-adoptable": (b) => {
    b.object(b.other);
    b.truth.published.add(BOX);
    b.at(30_000).has({ state: "stopping", actor: b.one.id, reason: "orphaned", user: null, thread: null });
  },
  "leaves-when-nothing-is-left": (b) => {
    b.object();
    b.at(10).has({ state: "stopping", actor: b.one.id, reason: "orphaned" });
    b.step(b.one, "remove", [{}], (tables) => tables.deleteRecord(BOX));
  },
  "purged-when-it-leaves": (b) => {
    const { ref } = b.object();
    b.ledger.destroy(ref);
    b.at(10).has({ state: "stopping", actor: b.one.id, reason: "destroyed", purge: true });
    b.step(b.one, "remove", [{}], (tables) => tables.deleteRecord(BOX));
  },
  "purge-only-when-asked": (b) => {
    b.has({ state: "stopping", actor: b.one.id, reason: "destroyed", purge: true });
  },
  "removed-by-its-actor": (b) => {
    b.has({ state: "stopping", actor: b.other.id, reason: "orphaned" }, b.other);
    b.step(b.one, "remove", [{}], (tables) => tables.deleteRecord(BOX));
  },
  "intent-first": (b) => b.engine.createAsked(b.one, b.spec()),
  "labels-are-complete": (b) => {
    b.has({ state: "creating", actor: b.one.id });
    b.engine.createAsked(b.one, b.spec({ labels: { ...b.spec().labels, threadKey: null } }));
  },
  "destroyed-only-when-stopping": (b) => {
    b.has();
    b.engine.destroyAsked(b.one, b.object().ref);
  },
  "destroyed-only-when-unheld": (b) => {
    const { ref } = b.object();
    b.has({ state: "stopping", actor: b.one.id, reason: "idle" });
    b.held({}, b.other);
    b.engine.destroyAsked(b.one, ref);
  },
  "addressed-by-ref": (b) => b.engine.refUsed(b.one, "box" as EngineRef, "probe"),
  "other-fleets-untouched": (b) => b.engine.refUsed(b.one, b.foreign().ref, "probe"),
  "rebind-follows-bind": (b) => {
    b.object();
    b.has({ holders: b.hold(), parkedAt: null });
    b.engine.rebound(
      b.one,
      { sandboxId: BOX, ref: REF, generation: LATER, token: TOKEN },
      { generation: GENERATION, token: TOKEN },
    );
  },
  "marker-before-bind": (b) => {
    b.has();
    b.engine.rebound(
      b.one,
      { sandboxId: BOX, ref: REF, generation: GENERATION, token: TOKEN },
      { generation: GENERATION, token: TOKEN },
    );
  },
  "workspace-steps-by-right": (b) => {
    b.has({ holders: b.hold(), parkedAt: null });
    b.engine.workspaceAsked(b.one, "moveHome", SPOT);
  },
  "home-only-without-process": (b) => {
    b.object();
    b.engine.workspaceChanged(b.one, "moveHome", SPOT);
  },
  "workspace-in-one-place": (b) => {
    b.object();
    b.ledger.slots.set("slot:x", { sandboxId: OTHER_BOX, workspace: { owner: OWNER, tokens: new Set() } });
    b.engine.checkPlaces(OWNER);
  },
  "purge-only-while-stopping": (b) => {
    b.has({ holders: b.hold(), parkedAt: null });
    b.engine.workspaceAsked(b.one, "purge", SPOT);
  },
  "restored-only-without-process": (b) => {
    b.object();
    const workspace = b.ledger.homes.get(OWNER);
    if (workspace !== undefined) b.engine.restoring(b.one, SPOT, workspace, new Set());
  },
  "nothing-uses-half-a-restore": (b) => {
    halfRestored(b);
    b.engine.used(b.one, SPOT);
  },
  "restore-is-kept": (b) => {
    b.has({ ...RESTORING, actor: b.one.id });
    b.change(b.other, "takeOver", {}, { actor: b.other.id, restore: undefined } as Partial<SandboxRecord>);
  },
  "restored-before-it-leaves": (b) => {
    halfRestored(b);
    b.has({ ...RESTORING, actor: b.one.id });
    b.step(b.one, "remove", [{}], (tables) => tables.deleteRecord(BOX));
  },
  "older-leave-the-restored-alone": (b) => {
    const object = b.object();
    historyOf(b.ledger, OWNER).restoredBy = LATER;
    b.engine.wrote(b.one, object, "w1");
  },
  "one-thread-per-sandbox": (b) => {
    const object = b.object();
    object.writers.add("ada/t1").add("bob/t1");
    b.engine.wrote(b.one, object, "w1");
  },
  "stale-writes-nothing": (b) => {
    b.has();
    b.truth.thread(OWNER).latestLeased = LATER;
    b.engine.wrote(b.one, b.object(), "w1");
  },
  "lease-is-held": (b) => {
    b.has();
    b.lease.acquired(b.held(), b.asked());
  },
  "lease-on-own-thread": (b) => {
    b.has({ thread: "t2" as SandboxRecord["thread"], holders: b.hold(), parkedAt: null });
    b.lease.acquired(b.held(), b.asked());
  },
  "one-sandbox-per-thread": (b) => {
    b.object();
    b.ledger.create(b.spec({ labels: { ...b.spec().labels, sandboxId: OTHER_BOX } }), "other");
    b.held({ sandboxId: OTHER_BOX }, b.other);
    b.lease.checkOneSandbox(b.held());
  },
  "no-lease-after-lifetime": (b) => {
    b.has({ holders: b.hold(), parkedAt: null });
    b.at(60_000).lease.acquired(b.held(), b.asked({ at: 60_000 }));
  },
  "loss-is-true": (b) => {
    b.object();
    b.lease.lost(b.held(), "crashed");
  },
  "nobody-is-superseded": (b) => b.lease.lost(b.held(), "superseded"),
  "forced-destroy-is-told": (b) => {
    const held = b.held();
    held.forced = { at: 0, pausedMs: 0 };
    held.lost = { reason: "crashed", at: 10, generation: GENERATION, storeFailedAt: -1 };
    b.at(20_000).liveness.atRest();
  },
  "held-keeps-working": (b) => {
    b.object();
    const error = new SandlotError("store_unavailable", { operation: "get", problem: "", retryAfterMs: 1 });
    b.lease.used(b.held(), error, { released: false, stale: false, lost: false });
  },
  "released-means-over": (b) => b.lease.used(b.held(), null, { released: true, stale: false, lost: false }),
  "write-is-of-its-generation": (b) => b.lease.used(b.held(), null, { released: false, stale: true, lost: false }),
  "no-restart-when-off": (b) => {
    Object.assign(b.settings, { autoRestart: false });
    b.lease.used(b.held(), null, { released: false, stale: false, lost: true });
  },
  "acknowledged-writes-stay": (b) => {
    b.truth.thread(OWNER).acknowledged.set("w1", 1);
    b.lease.read(b.held(), { owner: OWNER, tokens: [] }, ["w1"]);
  },
  "workspace-is-own": (b) => b.lease.read(b.held(), { owner: "bob/t1", tokens: [] }, []),
  "recovery-is-honest": (b) => {
    b.has({ holders: b.hold(), parkedAt: null });
    b.truth.thread(OWNER).acknowledged.set("w1", 1);
    b.at(10).lease.acquired(b.held({ recovery: "empty" }), b.asked({ at: 5 }));
  },
  "errors-are-named": (b) => b.lease.refused(new TypeError("undefined is not a function"), b.asked(), null),
  "counts-are-never-negative": (b) => {
    const counts = { leased: -1, parked: 0, blank: 0, creating: 0, stopping: 0, queued: 0 };
    const error = new SandlotError("capacity_exhausted", { ...counts, scope: "fleet", max: 1, retryAfterMs: 1 });
    b.lease.refused(error, b.asked(), null);
  },
  "acquire-settles-in-time": (b) => b.at(20_000).lease.acquireSettled(b.asked()),
  "destroy-answers-in-time": (b) => b.at(20_000).lease.answered("destroy", b.asked()),
  "destroy-is-honest": (b) => {
    b.object();
    b.has();
    b.one.beatConfirmedSentAt = 50;
    b.truth.thread(OWNER).latestLeased = GENERATION;
    b.at(100).lease.destroyed(b.asked({ at: 50 }), "absent");
  },
  "purge-is-honest": (b) => {
    b.truth.thread(OWNER).latestLeased = GENERATION;
    b.truth.thread(OWNER).acknowledged.set("w1", 10);
    b.ledger.homes.set(OWNER, { owner: OWNER, tokens: new Set(["w1"]) });
    b.one.beatConfirmedSentAt = 50;
    b.at(100).lease.purged(b.asked({ at: 50 }), "stopped");
  },
  "release-answers-in-time": (b) => b.lease.releaseFailed(b.held(), new Error("planted")),
  "close-ends-in-time": (b) => b.at(20_000).lease.answered("close", b.asked()),
  "promised-end-comes": (b) => {
    b.has();
    b.one.beatConfirmedSentAt = 10;
    b.at(20).promises.answered(b.asked({ at: 10 }), "stopping", false);
    b.at(60_000).promises.atRest();
  },
  "acquires-have-settled": (b) => b.liveness.checkSettled(new Map([[b.asked(), "acquire"]])),
  "destroys-have-settled": (b) => b.liveness.checkSettled(new Map([[b.asked(), "destroy"]])),
  "nothing-in-between": (b) => {
    b.has({ state: "creating", actor: b.one.id });
    b.at(60_000).liveness.atRest();
  },
  "no-orphans": (b) => {
    b.object();
    b.at(120_000).liveness.atRest();
  },
  "restores-are-finished": (b) => {
    halfRestored(b);
    b.liveness.atRest();
  },
  "no-ghosts": (b) => {
    b.has();
    b.liveness.atRest();
  },
  "no-leftovers": (b) => {
    b.ledger.slots.set("slot:x", { sandboxId: BOX, workspace: null });
    b.liveness.atRest();
  },
  "no-dead-sessions": (b) => {
    b.other.process.kill();
    b.liveness.atRest();
  },
  "holds-match-leases": (b) => {
    b.object();
    b.has({ holders: b.hold(), parkedAt: null });
    b.liveness.atRest();
  },
  "due-is-ended": (b) => {
    b.object();
    b.has({ parkedAt: EPOCH_MS });
    b.at(10_000_000).liveness.atRest();
  },
  "pool-is-back": (b) => b.liveness.checkPool(),
  "threads-come-back": (b) => b.liveness.checkCameBack(OWNER, false),
  "nothing-is-left": (b) => b.liveness.afterClose(),
};
