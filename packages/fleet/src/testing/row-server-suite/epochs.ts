/** Epochs: a new one drops every row that engines and holders can tell again. */

import type { RowServerCase } from "./stage.ts";

export const epochCases: readonly RowServerCase[] = [
  {
    name: "every client sees the same epoch, and an existing database keeps it",
    async run(stage) {
      const { expect } = stage;
      const second = await stage.harness.second();
      expect((await second.read([], stage.patience())).epoch).toBe(stage.epoch);
      expect((await second.scan(null, 1, stage.patience()))?.epoch).toBe(stage.epoch);
      expect(stage.epoch.length).toBeGreaterThan(7);
    },
  },
  {
    name: "a commit of another epoch is refused with the present one",
    async run(stage) {
      const commit = await stage.commitOf({ "record/a": "A" }, { epoch: stage.newEpoch() });
      stage.expect(await stage.commit(commit)).toMatchObject({ kind: "new-epoch", epoch: stage.epoch });
      stage.expect(await stage.bodies(["record/a"])).toEqual([null]);
    },
  },
  {
    name: "a new epoch drops the rows, except homes and entries",
    async run(stage) {
      const { expect } = stage;
      const keys = ["record/a", "session/a", "generation", "home/t", "entry/key", "home", "entrykey/a"];
      const seq = await stage.write(Object.fromEntries(keys.map((key) => [key, key])));
      const next = stage.newEpoch();
      expect(await stage.server.beginEpoch(stage.epoch, next, stage.patience())).toBe(next);
      const answer = await stage.server.read(keys, stage.patience());
      expect(answer.epoch).toBe(next);
      expect(answer.rows.map(({ body }) => body)).toEqual([null, null, null, "home/t", "entry/key", null, null]);
      // A kept row has kept its number.
      expect(answer.rows[3]?.seq).toBe(seq);
      const mirror = stage.newMirror();
      await mirror.follow();
      expect([...mirror.rows.keys()].sort()).toEqual(["entry/key", "home/t"]);
    },
  },
  {
    name: "a mirror notices a new epoch",
    async run(stage) {
      const { expect } = stage;
      await stage.write({ "record/a": "A" });
      const first = await stage.server.scan(null, 10, stage.patience());
      const next = stage.newEpoch();
      await stage.server.beginEpoch(stage.epoch, next, stage.patience());
      const page = await stage.server.scan(first?.cursor ?? null, 10, stage.patience());
      expect(page === null || page.epoch === next).toBe(true);
    },
  },
  {
    name: "commits go on in the new epoch, and those of the old one are refused, whatever their id",
    async run(stage) {
      const { expect } = stage;
      const old = await stage.commitOf({ "record/a": "A" });
      await stage.commit(old);
      const homed = await stage.write({ "home/t": "there" });
      const next = stage.newEpoch();
      await stage.server.beginEpoch(stage.epoch, next, stage.patience());
      expect(await stage.commit(old)).toMatchObject({ kind: "new-epoch", epoch: next });
      stage.epoch = next;
      const row = await stage.row("record/a");
      const reads = new Map([
        ["record/a", row.seq],
        ["home/t", homed],
      ]);
      stage.seqOf(await stage.commit(await stage.commitOf({ "record/a": "new" }, { reads })));
      expect(await stage.bodies(["record/a"])).toEqual(["new"]);
    },
  },
  {
    name: "only one of several new epochs begins, and everybody hears which",
    async run(stage) {
      const { expect } = stage;
      const second = await stage.harness.second();
      for (let round = 0; round < 5; round += 1) {
        const known = stage.epoch;
        const begun = await Promise.all(
          Array.from({ length: 6 }, (_, n) =>
            (n % 2 === 0 ? stage.server : second).beginEpoch(known, stage.newEpoch(), stage.patience()),
          ),
        );
        expect(new Set(begun).size).toBe(1);
        expect(begun[0]).toBe((await stage.server.read([], stage.patience())).epoch);
        stage.epoch = begun[0] ?? known;
      }
    },
  },
  {
    name: "beginning an epoch again, or after another, changes nothing",
    async run(stage) {
      const { expect } = stage;
      const first = stage.epoch;
      const next = stage.newEpoch();
      await stage.server.beginEpoch(first, next, stage.patience());
      stage.epoch = next;
      await stage.write({ "record/a": "A" });
      expect(await stage.server.beginEpoch(first, next, stage.patience())).toBe(next);
      expect(await stage.server.beginEpoch(first, stage.newEpoch(), stage.patience())).toBe(next);
      expect(await stage.bodies(["record/a"])).toEqual(["A"]);
    },
  },
  {
    name: "no commit of the old epoch lands in the new one",
    async run(stage) {
      const { expect } = stage;
      const second = await stage.harness.second();
      for (let round = 0; round < 10; round += 1) {
        const keys = Array.from({ length: 8 }, (_, n) => `record/${round}-${n}`);
        const commits = await Promise.all(keys.map((key) => stage.commitOf({ [key]: "old" })));
        const next = stage.newEpoch();
        const sent = commits.map((commit, n) => stage.commit(commit, n % 2 === 0 ? stage.server : second));
        const begun = second.beginEpoch(stage.epoch, next, stage.patience());
        const answers = await Promise.all(sent);
        expect(await begun).toBe(next);
        for (const { kind } of answers) expect(["committed", "new-epoch"]).toContain(kind);
        expect(await stage.bodies(keys)).toEqual(keys.map(() => null));
        stage.epoch = next;
      }
    },
  },
];
