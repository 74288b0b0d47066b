/** One commit at a time: reads are compared, writes are applied, all or nothing. */

import type { RowServerCase } from "./stage.ts";

export const committingCases: readonly RowServerCase[] = [
  {
    name: "a row that was never written is absent with number 0",
    async run(stage) {
      stage.expect(await stage.rows(["record/a"])).toEqual([{ key: "record/a", seq: 0, body: null }]);
      stage.expect(await stage.rows([])).toEqual([]);
    },
  },
  {
    name: "a commit writes several rows under one number, and a read gives them in the order of its keys",
    async run(stage) {
      const { expect } = stage;
      const seq = stage.seqOf(await stage.commit(await stage.commitOf({ "record/a": "A", "record/b": "B" })));
      expect(seq).toBeGreaterThan(0);
      expect(await stage.rows(["record/b", "record/none", "record/a"])).toEqual([
        { key: "record/b", seq, body: "B" },
        { key: "record/none", seq: 0, body: null },
        { key: "record/a", seq, body: "A" },
      ]);
      const second = await stage.harness.second();
      expect(await stage.row("record/a", second)).toEqual({ key: "record/a", seq, body: "A" });
    },
  },
  {
    name: "a later write of a row has a higher number, also after a deletion",
    async run(stage) {
      const { expect } = stage;
      let last = 0;
      for (const body of ["1", "2", null, "3", null, "4"]) {
        const seq = await stage.write({ "record/a": body });
        expect(seq).toBeGreaterThan(last);
        expect(await stage.row("record/a")).toEqual({ key: "record/a", seq, body });
        last = seq;
      }
    },
  },
  {
    name: "an outdated read is a conflict with the present row, and nothing is applied",
    async run(stage) {
      const { expect } = stage;
      const old = await stage.write({ "record/a": "old" });
      const other = await stage.write({ "record/b": "other" });
      const seq = await stage.write({ "record/a": "new" });
      const reads = new Map([
        ["record/a", old],
        ["record/b", other],
      ]);
      const writes = { "record/a": "mine", "record/c": "mine" };
      const answer = await stage.commit(await stage.commitOf(writes, { reads }));
      // Only the rows that differ.
      expect(stage.conflictOf(answer)).toEqual({ "record/a": { key: "record/a", seq, body: "new" } });
      expect(await stage.bodies(["record/a", "record/b", "record/c"])).toEqual(["new", "other", null]);
    },
  },
  {
    name: "a read row that is not written is compared too",
    async run(stage) {
      const old = await stage.write({ "session/a": "1" });
      await stage.write({ "session/a": "2" });
      const reads = new Map([["session/a", old]]);
      const answer = await stage.commit(await stage.commitOf({ "record/a": "A" }, { reads }));
      stage.expect(Object.keys(stage.conflictOf(answer))).toEqual(["session/a"]);
      stage.expect(await stage.bodies(["record/a"])).toEqual([null]);
    },
  },
  {
    name: "every row that differs is in the conflict",
    async run(stage) {
      const { expect } = stage;
      await stage.write({ "record/a": "A" });
      const seq = await stage.write({ "record/b": "B" });
      await stage.write({ "record/b": null });
      const reads = new Map([
        ["record/a", 0],
        ["record/b", seq],
        ["record/c", seq],
      ]);
      const rows = stage.conflictOf(await stage.commit(await stage.commitOf({}, { reads })));
      expect(Object.keys(rows).sort()).toEqual(["record/a", "record/b", "record/c"]);
      expect(rows["record/a"]).toMatchObject({ body: "A" });
      expect(rows["record/b"]).toMatchObject({ body: null });
      expect(rows["record/b"]?.seq ?? 0).toBeGreaterThan(seq);
      expect(rows["record/c"]).toEqual({ key: "record/c", seq: 0, body: null });
    },
  },
  {
    name: "the rows of a conflict are enough for the next try",
    async run(stage) {
      const { expect } = stage;
      await stage.write({ "record/a": "theirs", "record/gone": "x" });
      await stage.write({ "record/gone": null });
      const first = await stage.commitOf({ "record/a": "mine", "record/gone": "mine" });
      const rows = stage.conflictOf(await stage.commit(first));
      const reads = new Map(Object.values(rows).map(({ key, seq }) => [key, seq]));
      const again = await stage.commitOf({ "record/a": "mine", "record/gone": "mine" }, { reads });
      stage.seqOf(await stage.commit(again));
      expect(await stage.bodies(["record/a", "record/gone"])).toEqual(["mine", "mine"]);
    },
  },
  {
    name: "a row that came and went is a conflict for a client that knew it as absent",
    async run(stage) {
      const { expect } = stage;
      await stage.write({ "record/a": "came" });
      const seq = await stage.write({ "record/a": null });
      const rows = stage.conflictOf(await stage.commit(await stage.commitOf({ "record/a": "mine" })));
      expect(rows["record/a"]).toEqual({ key: "record/a", seq, body: null });
      const reads = new Map([["record/a", seq]]);
      stage.seqOf(await stage.commit(await stage.commitOf({ "record/a": "mine" }, { reads })));
    },
  },
  {
    name: "a deletion marker lasts as long as clients rely on it",
    async run(stage) {
      await stage.write({ "record/a": "came" });
      await stage.write({ "record/a": null });
      await stage.harness.age(590_000);
      stage.conflictOf(await stage.commit(await stage.commitOf({ "record/a": "mine" })));
    },
  },
  {
    name: "a row outlives its deletion marker's time if it exists",
    async run(stage) {
      const seq = await stage.write({ "record/a": "A", "record/b": "B" });
      await stage.write({ "record/b": null });
      await stage.harness.age(700_000);
      stage.expect(await stage.row("record/a")).toEqual({ key: "record/a", seq, body: "A" });
      stage.expect(await stage.row("record/b")).toMatchObject({ body: null });
      // Whatever number it answers for the deleted row, a commit with it succeeds.
      await stage.write({ "record/b": "again" });
    },
  },
  {
    name: "a deletion of an absent row is an ordinary write",
    async run(stage) {
      const seq = stage.seqOf(await stage.commit(await stage.commitOf({ "record/a": null })));
      const answer = await stage.commit(
        await stage.commitOf({ "record/a": "A" }, { reads: new Map([["record/a", seq]]) }),
      );
      stage.seqOf(answer);
      stage.expect(await stage.bodies(["record/a"])).toEqual(["A"]);
    },
  },
  {
    name: "a commit without writes only checks",
    async run(stage) {
      const { expect } = stage;
      const seq = await stage.write({ "record/a": "A" });
      const reads = new Map([
        ["record/a", seq],
        ["record/none", 0],
      ]);
      expect((await stage.commit(await stage.commitOf({}, { reads }))).kind).toBe("committed");
      expect(await stage.row("record/a")).toEqual({ key: "record/a", seq, body: "A" });
      await stage.write({ "record/none": "x" });
      expect((await stage.commit(await stage.commitOf({}, { reads }))).kind).toBe("conflict");
    },
  },
  {
    name: "answers carry the database's clock, the same for every client",
    async run(stage) {
      const { expect } = stage;
      const second = await stage.harness.second();
      const one = await stage.now();
      const committed = await stage.commit(await stage.commitOf({ "record/a": "A" }), second);
      const conflict = await stage.commit(await stage.commitOf({ "record/a": "B" }));
      const page = await stage.server.scan(null, 10, stage.patience());
      const other = await stage.now(second);
      const clock = [one, committed.now, conflict.now, page?.now ?? 0, other];
      for (const now of clock) expect(Number.isInteger(now)).toBe(true);
      expect(clock).toEqual(clock.toSorted((x, y) => x - y));
      expect(other - one).toBeLessThanOrEqual(20_000);
    },
  },
];
