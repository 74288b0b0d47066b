/** Reading: lookups, and their visibility to other connections; watching and closing. */

import type { InstanceId, ThreadId, UserId } from "@sandlot/contract";
import { isSandlotError } from "@sandlot/contract";
import { ENGINE, ids, type StoreCase, stopOf, UNKNOWN_SANDBOX, USER } from "./stage.ts";

export const readingCases: readonly StoreCase[] = [
  {
    name: "a fresh store is empty and recovering, with an epoch of its own",
    begins: "recovering",
    async run({ store, expect }) {
      const meta = await store.meta(ENGINE);
      expect(meta.recovering).toBe(true);
      expect(meta.epoch.length).toBeGreaterThanOrEqual(16);
      expect(await store.list()).toEqual([]);
      expect(await store.sessions()).toEqual([]);
    },
  },
  {
    name: "what is unknown is null",
    async run({ store, expect }) {
      expect(await store.get(UNKNOWN_SANDBOX)).toBe(null);
      expect(await store.find(USER, "nobody" as ThreadId)).toBe(null);
      expect(await store.tombstone(UNKNOWN_SANDBOX)).toBe(null);
      expect(await store.findLease("nobody" as never)).toBe(null);
    },
  },
  {
    name: "a record is found by its id and by its thread, and a thread belongs to its user",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const record = await stage.ready(a, "t", 1);
      expect(await store.get(record.sandboxId)).toEqual(record);
      expect(await store.find(USER, "t" as ThreadId)).toEqual(record);
      expect(await store.find("other" as UserId, "t" as ThreadId)).toBe(null);
    },
  },
  {
    name: "ended sandboxes are found by the beginning of their id and by their thread, the newest first",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const first = await stage.stopping(a, "t");
      await store.remove({ sandboxId: first.sandboxId, revision: first.revision, actor: a });
      const second = await stage.stopping(a, "t");
      await store.remove({ sandboxId: second.sandboxId, revision: second.revision, actor: a });
      const found = async (filter: Parameters<typeof store.tombstones>[0]) =>
        (await store.tombstones(filter)).map(({ sandboxId }) => sandboxId);
      expect(await found({ user: USER, thread: "t" as ThreadId })).toEqual([second.sandboxId, first.sandboxId]);
      expect(await found({ user: "other" as UserId, thread: "t" as ThreadId })).toEqual([]);
      expect(await found({ idPrefix: first.sandboxId })).toContain(first.sandboxId);
      expect(await found({ idPrefix: "%" })).toEqual([]);
    },
  },
  {
    name: "lists by what a record is",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const creating = await stage.creating(a, "creating");
      const stopping = await stage.stopping(a, "stopping");
      const held = await stage.ready(a, "held", 1);
      const leased = await stage.ready(a, "leased");
      await stage.lease(leased, "lease");
      const parked = await stage.ready(a, "parked");
      const blank = await stage.ready(a, null);
      const other = await stage.ready(a, null, null, { blueprintHash: "other" as never });
      expect(ids(await store.list())).toEqual(ids([creating, stopping, held, leased, parked, blank, other]));
      expect(ids(await store.list({ acting: true }))).toEqual(ids([creating, stopping]));
      expect(ids(await store.list({ parked: true }))).toEqual(ids([parked]));
      expect(ids(await store.list({ unheld: true }))).toEqual(
        ids([parked, blank, other].filter(({ holders }) => Object.keys(holders).length === 0)),
      );
      expect(ids(await store.list({ leased: true }))).toEqual(ids([leased]));
      expect(await store.census()).toMatchObject({ creating: 1, stopping: 1 });
      const counts = Object.values(await store.census());
      expect(counts.reduce((sum, count) => sum + count, 0)).toBe(7);
      expect(ids(await store.list({ blankOf: blank.blueprintHash }))).toEqual(ids([blank]));
      expect(ids(await store.list({ blankOf: "no such" }))).toEqual([]);
    },
  },
  {
    name: "another connection sees what was written, at once",
    async run(stage) {
      const a = await stage.join("a");
      const second = await stage.second();
      const record = await stage.ready(a, "t", 1);
      stage.expect(await second.get(record.sandboxId)).toEqual(record);
      stage.expect(await second.meta(ENGINE)).toEqual(await stage.store.meta(ENGINE));
      stage.expect(await second.sessions()).toEqual(await stage.store.sessions());
    },
  },
  {
    name: "watch hints at what others write, until it is stopped",
    async run(stage) {
      const a = await stage.join("a");
      const record = await stage.ready(a, "t");
      const second = await stage.second();
      let hinted = () => {};
      const hint = new Promise<void>((resolve) => {
        hinted = resolve;
      });
      const stop = stage.store.watch(hinted);
      // A store may leave out changes for which no caller waits, such as a hold.
      await second.stop(stopOf(record, a));
      await hint;
      stop();
      stop();
    },
  },
  {
    name: "close twice is fine, and afterwards every step is store_unavailable",
    async run(stage) {
      const { expect } = stage;
      const second = await stage.second();
      const stop = second.watch(() => {});
      await second.close();
      await second.close();
      stop();
      for (const step of [
        () => second.meta(ENGINE),
        () => second.leave("b" as InstanceId),
        () => stage.beat("b", 1, { register: true }, second),
      ]) {
        const error = await step().then(
          () => null,
          (error: unknown) => error,
        );
        expect(isSandlotError(error, "store_unavailable")).toBe(true);
      }
      expect((await stage.store.meta(ENGINE)).recovering).toBe(false);
    },
  },
];
