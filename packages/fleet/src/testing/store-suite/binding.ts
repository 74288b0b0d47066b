/** A blank becomes a thread's sandbox in one transaction (rule 13). */

import type { InstanceId, ThreadId, Token, UserId } from "@sandlot/contract";
import type { SandboxRecord } from "../../store/record.ts";
import type { BindRequest } from "../../store/store.ts";
import { later, nextGeneration, type Stage, type StoreCase, UNKNOWN_SANDBOX, USER } from "./stage.ts";

export const bindingCases: readonly StoreCase[] = [
  {
    name: "bind consumes the blank, claims the thread and takes a hold",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const blank = await stage.ready(a, null);
      const request = await bindOf(stage, blank, a, "t");
      const answer = await store.bind(request);
      const { generation, token } = blank;
      expect(answer.kind).toBe("bound");
      if (answer.kind !== "bound") return;
      expect(answer.record).toMatchObject({
        ...{
          user: USER,
          thread: "t",
          generation: request.generation,
          token: request.token,
          boundFrom: { generation, token },
        },
        ...{ revision: blank.revision + 1, parkedAt: null, place: blank.place, ref: blank.ref, state: "ready" },
        holders: { a: { generation: request.generation, seq: 1 } },
      });
      expect(await store.find(USER, "t" as ThreadId)).toEqual(answer.record);
      expect(await store.list({ blankOf: blank.blueprintHash })).toEqual([]);
    },
  },
  {
    name: "a blank that changed, is gone or is no blank is taken",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const blank = await stage.ready(a, null);
      const request = await bindOf(stage, blank, a, "t");
      expect(await store.bind({ ...request, revision: blank.revision + 1 })).toEqual({ kind: "taken" });
      expect(await store.bind({ ...request, sandboxId: UNKNOWN_SANDBOX })).toEqual({ kind: "taken" });
      const parked = await stage.ready(a, "parked");
      expect(await store.bind(await bindOf(stage, parked, a, "t"))).toEqual({ kind: "taken" });
      const creating = await stage.creating(a, null);
      expect(await store.bind(await bindOf(stage, creating, a, "t"))).toEqual({ kind: "taken" });
      expect((await store.bind(request)).kind).toBe("bound");
      expect(await store.bind(await bindOf(stage, blank, a, "t2"))).toEqual({ kind: "taken" });
    },
  },
  {
    name: "a thread that has a sandbox by now keeps it, and the blank stays blank",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const blank = await stage.ready(a, null);
      const record = await stage.creating(a, "t");
      expect(await store.bind(await bindOf(stage, blank, a, "t"))).toEqual({ kind: "exists", record });
      expect(await stage.now(blank.sandboxId)).toEqual(blank);
    },
  },
  {
    name: "a generation that the thread has left behind binds nothing",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const blank = await stage.ready(a, null);
      const lived = async () => {
        const held = await stage.ready(a, "t", 1);
        const { revision } = await stage.stop(held, a, { mode: { kind: "dead" }, reason: "crashed" });
        expect(await store.remove({ sandboxId: held.sandboxId, revision, actor: a })).toBe(true);
        return held.generation;
      };
      // The thread's last sandbox counts, not its first.
      const first = await lived();
      const early = await bindOf(stage, blank, a, "t");
      expect(early.generation).toBeGreaterThan(first);
      expect(await lived()).toBeGreaterThan(early.generation);
      expect(await store.bind(early)).toEqual({ kind: "taken" });
      expect((await store.bind(await bindOf(stage, blank, a, "t"))).kind).toBe("bound");
    },
  },
  {
    name: "binding counts the user's limit",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      await stage.stopping(a, "t1");
      const blank = await stage.ready(a, null);
      const request = { ...(await bindOf(stage, blank, a, "t2")), maxPerUser: 1 };
      expect(await store.bind(request)).toMatchObject({
        kind: "full",
        scope: "user",
        max: 1,
        counts: { stopping: 1, blank: 0 },
      });
      expect(await stage.now(blank.sandboxId)).toEqual(blank);
      expect((await store.bind({ ...request, maxPerUser: 2 })).kind).toBe("bound");
    },
  },
  {
    name: "confirmBound forgets what the daemon was made with and keeps what arrived, once and only for this generation",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const blank = await stage.ready(a, null);
      const request = await bindOf(stage, blank, a, "t");
      await store.bind(request);
      const { sandboxId } = blank;
      await store.confirmBound(sandboxId, later(request.generation), "restored");
      await store.confirmBound(UNKNOWN_SANDBOX, request.generation, "restored");
      const bound = await stage.now(sandboxId);
      expect(bound).toMatchObject({ arrival: null, boundFrom: { generation: blank.generation, token: blank.token } });
      await store.confirmBound(sandboxId, request.generation, "restored");
      const confirmed = await stage.now(sandboxId);
      expect(confirmed).toEqual({ ...bound, boundFrom: null, arrival: "restored", revision: bound.revision + 1 });
      await store.confirmBound(sandboxId, request.generation, "empty");
      expect(await stage.now(sandboxId)).toEqual(confirmed);
    },
  },
  {
    name: "another user's thread of the same name is another thread",
    async run(stage) {
      const a = await stage.join("a");
      await stage.ready(a, "t", 1);
      const blank = await stage.ready(a, null);
      const request = { ...(await bindOf(stage, blank, a, "t")), user: "other" as UserId };
      stage.expect((await stage.store.bind(request)).kind).toBe("bound");
    },
  },
];

export async function bindOf(
  stage: Stage,
  blank: SandboxRecord,
  instance: InstanceId,
  thread: string,
): Promise<BindRequest> {
  const { sandboxId, revision } = blank;
  const generation = await nextGeneration(stage.store);
  const token = `token-of-${thread}` as Token;
  return {
    sandboxId,
    revision,
    user: USER,
    thread: thread as ThreadId,
    generation,
    token,
    instance,
    seq: 1,
    maxPerUser: null,
  };
}
