/**
 * Engines: who reaches which sandbox, where a thread lives, and what each engine waits for after a loss. A store that
 * is not shared serves one host, so every case also says what that store answers.
 */

import type { EngineRef, InstanceId, SandboxId, ThreadId, UserId } from "@sandlot/contract";
import { anonymousThread, type SandboxRecord } from "../../store/record.ts";
import type { LocateRequest } from "../../store/store.ts";
import { bindOf } from "./binding.ts";
import { ENGINE, NO_LIMITS, nextGeneration, type Stage, type StoreCase, stopOf, takeOf, USER } from "./stage.ts";

/** The engine of another host. */
const THERE = "engine-there";
const ADDRESS = "http://there:7654";

export const engineCases: readonly StoreCase[] = [
  {
    name: "a session says which engines it reaches and where its gateway is, and a record which engine has it",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      await joinThere(stage, "b");
      const sessions = new Map((await store.sessions()).map((session) => [session.instance as string, session]));
      expect(sessions.get("a")).toMatchObject({ engines: [ENGINE], address: null });
      expect(sessions.get("b")).toMatchObject({ engines: [THERE], address: ADDRESS });
      const record = await stage.ready(a, "t", 1);
      expect(record.engine).toBe(ENGINE);
      expect((await stage.now(record.sandboxId)).engine).toBe(ENGINE);
      expect((await stage.stop(record, a, { mode: { kind: "force" } })).engine).toBe(ENGINE);
      await stage.beat("b", 2, { engines: [THERE, "engine-new"], address: null });
      const later = (await store.sessions()).find(({ instance }) => (instance as string) === "b");
      expect(later).toMatchObject({ engines: [THERE, "engine-new"], address: null });
    },
  },
  {
    name: "a thread of another engine is elsewhere, with the gateways that reach it; not shared, it is here",
    async run(stage) {
      const { store, expect } = stage;
      const [a, b] = [await stage.join("a"), await joinThere(stage, "b")];
      const record = await readyThere(stage, b, "t");
      const elsewhere = { kind: "elsewhere", engine: THERE, gateways: [ADDRESS], isReachable: true };
      const blank = await stage.ready(a, null);
      if (!store.isShared) {
        expect((await store.take(takeOf("t", a, 1))).kind).toBe("held");
        expect((await store.locate(locateOf("t"))).elsewhere).toBe(null);
        return;
      }
      expect(await store.take(takeOf("t", a, 1))).toEqual(elsewhere);
      expect(await stage.tryReserve(a, "t")).toEqual(elsewhere);
      expect(await store.bind(await bindOf(stage, blank, a, "t"))).toEqual(elsewhere);
      expect((await store.locate(locateOf("t"))).elsewhere).toEqual(elsewhere);
      expect((await store.locate({ ...locateOf("t"), engines: [THERE] })).elsewhere).toBe(null);
      expect(await stage.now(record.sandboxId)).toEqual(record);
      expect((await store.take(takeOf("t", b, 1))).kind).toBe("held");
    },
  },
  {
    name: "a thread is settled when its first sandbox is ready, not while one is made",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      expect((await stage.tryReserve(a, "t")).kind).toBe("reserved");
      const { isSettled } = await store.locate(locateOf("t"));
      expect(isSettled).toBe(!store.isShared);
    },
  },
  {
    name: "an engine without a session is out of reach, and what it has stays",
    async run(stage) {
      const { store, expect } = stage;
      const [a, b] = [await stage.join("a"), await joinThere(stage, "b")];
      const { sandboxId } = await readyThere(stage, b, "t");
      await stage.endDeadSession(b);
      if (!store.isShared) return expect((await store.take(takeOf("t", a, 1))).kind).toBe("held");
      const unreachable = { kind: "elsewhere", engine: THERE, gateways: [], isReachable: false };
      expect(await store.take(takeOf("t", a, 1))).toEqual(unreachable);
      expect((await stage.now(sandboxId)).state).toBe("ready");
    },
  },
  {
    name: "a thread stays with its engine without a sandbox, also in a new epoch, until it is purged",
    async run(stage) {
      const { store, expect } = stage;
      const [a, b] = [await stage.join("a"), await joinThere(stage, "b")];
      await end(stage, await readyThere(stage, b, "t"), b);
      if (!store.isShared) return expect((await stage.tryReserve(a, "t")).kind).toBe("reserved");
      expect(await stage.tryReserve(a, "t")).toMatchObject({ kind: "elsewhere", engine: THERE });
      await stage.beginEpoch();
      await rejoin(stage);
      expect(await stage.tryReserve(a, "t")).toMatchObject({ kind: "elsewhere", engine: THERE });
      await end(stage, await readyThere(stage, b, "t"), b, true);
      expect((await store.locate(locateOf("t"))).elsewhere).toBe(null);
      expect((await stage.tryReserve(a, "t")).kind).toBe("reserved");
    },
  },
  {
    name: "a bound blank and an adopted sandbox settle their thread, a thread without a name never does",
    async run(stage) {
      const { store, expect } = stage;
      const [a, b] = [await stage.join("a"), await joinThere(stage, "b")];
      const blank = await readyThere(stage, b, null);
      const bound = await store.bind(await bindOf(stage, blank, b, "bound"));
      expect(bound.kind).toBe("bound");
      const { epoch } = await store.meta(THERE);
      const adopted = {
        ...stage.newRecord({ engine: THERE }),
        ...{ user: USER, thread: "adopted" as ThreadId, generation: await nextGeneration(store), epoch },
        ...{ ref: "ref" as EngineRef, place: "home" as const, limits: NO_LIMITS },
      };
      expect(await store.adopt(adopted)).toBe(true);
      const nameless = anonymousThread("0a");
      await end(stage, await readyThere(stage, b, nameless), b);
      const elsewhere = async (thread: string) => (await store.locate(locateOf(thread))).elsewhere?.engine ?? null;
      const there = store.isShared ? THERE : null;
      expect([await elsewhere("bound"), await elsewhere("adopted")]).toEqual([there, there]);
      expect(await elsewhere(nameless)).toBe(null);
      expect((await stage.tryReserve(a, nameless)).kind).toBe("reserved");
    },
  },
  {
    name: "only a session that reaches the engine ends its sandboxes and takes over its work",
    async run(stage) {
      const { store, expect } = stage;
      const [a, b] = [await stage.join("a"), await joinThere(stage, "b")];
      const parked = await readyThere(stage, b, "t");
      const creating = await stage.creating(b, "t2", { engine: THERE });
      await stage.endDeadSession(b);
      const { sandboxId, revision } = creating;
      const isTheirs = store.isShared;
      for (const mode of [
        { kind: "unheld", revision: parked.revision, createdAt: parked.createdAt },
        { kind: "dead" },
        { kind: "force" },
      ] as const) {
        if (isTheirs) expect(await store.stop(stopOf(parked, a, { mode }))).toEqual({ kind: "lost", record: parked });
      }
      const taken = await store.takeOver({ sandboxId, revision, actor: a });
      expect(taken?.actor ?? null).toBe(isTheirs ? null : a);
      if (!isTheirs) return expect((await store.stop(stopOf(parked, a))).kind).toBe("stopping");
      await joinThere(stage, "c");
      expect((await store.takeOver({ sandboxId, revision, actor: "c" as InstanceId }))?.state).toBe("stopping");
      expect((await store.stop(stopOf(parked, "c" as InstanceId))).kind).toBe("stopping");
    },
  },
  {
    name: "take picks a blank of an engine that the caller reaches, and bind takes no other",
    async run(stage) {
      const { store, expect } = stage;
      const [a, b] = [await stage.join("a"), await joinThere(stage, "b")];
      const far = await readyThere(stage, b, null);
      const blank = { blueprintHash: far.blueprintHash, except: [] };
      const picked = await store.take(takeOf("t", a, 1, { blank }));
      expect(picked.kind).toBe(store.isShared ? "other" : "blank");
      expect((await store.take(takeOf("t", b, 1, { blank }))).kind).toBe("blank");
      const bound = await store.bind(await bindOf(stage, far, a, "t"));
      expect(bound.kind).toBe(store.isShared ? "taken" : "bound");
      const near = await stage.ready(a, null);
      const own = await store.take(takeOf("t2", a, 2, { blank }));
      expect(own).toMatchObject({ kind: "blank", record: { sandboxId: near.sandboxId } });
    },
  },
  {
    name: "each engine has its own limit",
    async run(stage) {
      const { store, expect } = stage;
      const [a, b] = [await stage.join("a"), await joinThere(stage, "b")];
      await readyThere(stage, b, "t1");
      const limits = { ...NO_LIMITS, maxPerEngine: 1 };
      const counts = { parked: 1 };
      const full = { kind: "full", scope: "engine", max: 1 };
      expect(await stage.tryReserve(b, "t2", { engine: THERE, limits })).toMatchObject({ ...full, counts });
      const first = await stage.tryReserve(a, "t2", { limits });
      if (!store.isShared) return expect(first).toMatchObject(full);
      expect(first.kind).toBe("reserved");
      expect(await stage.tryReserve(a, "t3", { limits })).toMatchObject(full);
      expect(await stage.tryReserve(a, "t3", { limits: { ...limits, max: 2 } })).toMatchObject(full);
      const roomy = { max: 2, maxPerUser: null, maxPerEngine: 5 };
      expect(await stage.tryReserve(a, "t3", { limits: roomy })).toMatchObject({
        kind: "full",
        scope: "fleet",
        max: 2,
      });
    },
  },
  {
    name: "engines recover one by one: a thread waits for its own, and one without a home for all that have a session",
    begins: "recovering",
    async run(stage) {
      const { store, expect } = stage;
      const [a, b] = [await stage.join("a"), await stage.beat("b", 1, { register: true, engines: [THERE] })];
      expect(b).toMatchObject({ kind: "ok", recovering: true });
      await stage.endRecovery();
      expect(await store.meta(ENGINE)).toMatchObject({ recovering: false });
      expect((await store.meta(THERE)).recovering).toBe(store.isShared);
      if (!store.isShared) return expect((await stage.tryReserve(a, "new")).kind).toBe("reserved");
      expect(await stage.beat("a", 2)).toMatchObject({ recovering: false });
      expect((await stage.tryReserve(a, "new")).kind).toBe("recovering");
      expect((await store.locate(locateOf("new"))).recovering).toBe(true);
      // No other engine can have what is new.
      expect((await stage.tryReserve(a, null)).kind).toBe("reserved");
      expect((await stage.tryReserve(a, anonymousThread("0b"))).kind).toBe("reserved");
      // Nobody waits for an engine that no session reaches.
      await stage.endDeadSession("b" as InstanceId);
      const held = await stage.ready(a, "known", 1);
      await stage.beat("b", 1, { register: true, engines: [THERE] });
      expect((await stage.tryReserve(a, "new")).kind).toBe("recovering");
      expect((await store.take(takeOf("known", a, 2))).kind).toBe("held");
      expect((await store.stop(stopOf(held, a, { mode: { kind: "force" } }))).kind).toBe("stopping");
      await stage.endRecovery(THERE);
      expect((await stage.tryReserve(a, "new")).kind).toBe("reserved");
    },
  },
  {
    name: "a first create that fails ties its thread to no engine, and one that is made does",
    async run(stage) {
      const { store, expect } = stage;
      const [a, b] = [await stage.join("a"), await joinThere(stage, "b")];
      const first = await stage.creating(b, "t", { engine: THERE });
      const elsewhere = store.isShared ? { kind: "elsewhere", engine: THERE } : { kind: "exists" };
      expect(await stage.tryReserve(a, "t")).toMatchObject(elsewhere);
      await end(stage, first, b, false, "abandon");
      expect((await store.locate(locateOf("t"))).elsewhere).toBe(null);
      const second = await stage.ready(a, "t");
      await end(stage, second, a);
      const there = await store.locate({ ...locateOf("t"), engines: [THERE] });
      expect(there.elsewhere?.engine ?? null).toBe(store.isShared ? ENGINE : null);
    },
  },
  {
    name: "a thread without a home waits for another engine's recovery for a limited time",
    begins: "recovering",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      await stage.endRecovery();
      const there = { register: true, engines: [THERE] };
      await stage.beat("b", 1, { ...there, awaitedMs: 60_000 });
      const waits = store.isShared ? "recovering" : "reserved";
      expect((await stage.tryReserve(a, "one")).kind).toBe(waits);
      // Another instance of that engine, such as one that is started again and again, does not prolong the wait.
      await stage.beat("c", 1, { ...there, awaitedMs: 0 });
      expect((await stage.tryReserve(a, "two")).kind).toBe(waits);
      await stage.beginEpoch();
      await stage.beat("a", 9, { register: true });
      await stage.endRecovery();
      await stage.beat("b", 9, { ...there, awaitedMs: 0 });
      expect((await stage.tryReserve(a, "three")).kind).toBe("reserved");
      await stage.beat("c", 9, { ...there, awaitedMs: 60_000 });
      expect((await stage.tryReserve(a, "four")).kind).toBe("reserved");
    },
  },
  {
    name: "what a thread has left behind on another engine is neither put back nor adopted, and claims no thread",
    async run(stage) {
      const { store, expect } = stage;
      const [a, b] = [await stage.join("a"), await joinThere(stage, "b")];
      const before = await stage.ready(a, "t", 1);
      await end(stage, before, a, true);
      await end(stage, await readyThere(stage, b, "t"), b);
      if (!store.isShared) return;
      const record = { ...before, sandboxId: "left-behind" as SandboxId };
      expect(await store.restore({ record, instance: a, seq: 9 })).toEqual({ kind: "gone", record: null });
      const key = { user: USER, thread: "t" as ThreadId };
      const generation = await nextGeneration(store);
      const object = { ...stage.newRecord(), generation, ref: "ref" as EngineRef, place: "home" as const };
      const { epoch } = await store.meta(ENGINE);
      expect(await store.adopt({ ...object, ...key, limits: NO_LIMITS, epoch })).toBe(false);
      expect(await store.claimForRemoval({ ...object, key, actor: a, purge: true })).toBe(null);
      const condemned = stage.some(await store.claimForRemoval({ ...object, key, actor: a }));
      expect(condemned).toMatchObject({ user: null, thread: null, engine: ENGINE });
      const foreign = { ...object, sandboxId: "foreign" as SandboxId, engine: THERE, key: null, actor: a };
      expect(await store.claimForRemoval(foreign)).toBe(null);
    },
  },
];

/** An instance of the other host. Its engine has recovered. */
async function joinThere(stage: Stage, name: string): Promise<InstanceId> {
  const answer = await stage.beat(name, 1, { register: true, engines: [THERE], address: ADDRESS });
  stage.expect(answer.kind).toBe("ok");
  await stage.endRecovery(THERE);
  return name as InstanceId;
}

/** After a loss of the store. */
async function rejoin(stage: Stage): Promise<void> {
  const { epoch } = await stage.store.meta(ENGINE);
  for (const [name, engines] of [["a", [ENGINE]] as const, ["b", [THERE]] as const])
    stage.expect((await stage.beat(name, 9, { register: true, epoch, engines, address: ADDRESS })).kind).toBe("ok");
  await stage.endRecovery(ENGINE);
  await stage.endRecovery(THERE);
}

function readyThere(stage: Stage, actor: InstanceId, thread: string | null) {
  return stage.ready(actor, thread, null, { engine: THERE });
}

/** Ends a sandbox, as its engine confirms it. */
async function end(
  stage: Stage,
  record: SandboxRecord,
  actor: InstanceId,
  purge = false,
  kind: "force" | "abandon" = "force",
): Promise<void> {
  const { sandboxId, revision } = await stage.stop(record, actor, { mode: { kind }, purge });
  stage.expect(await stage.store.remove({ sandboxId, revision, actor })).toBe(true);
}

/** As an instance of this host asks. */
function locateOf(thread: string): LocateRequest {
  return { user: USER as UserId, thread: thread as ThreadId, engines: [ENGINE] };
}
