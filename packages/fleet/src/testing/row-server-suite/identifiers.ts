/** Retried commits, commits that must be there, and commits that arrive too late. */

import type { RowServerCase } from "./stage.ts";

export const identifierCases: readonly RowServerCase[] = [
  {
    name: "a commit with a known id is answered as the first time and not applied again",
    async run(stage) {
      const { expect } = stage;
      const commit = await stage.commitOf({ "record/a": "first" });
      const seq = stage.seqOf(await stage.commit(commit));
      const later = await stage.write({ "record/a": "later" });
      expect(stage.seqOf(await stage.commit(commit))).toBe(seq);
      const second = await stage.harness.second();
      expect(stage.seqOf(await stage.commit(commit, second))).toBe(seq);
      expect(await stage.row("record/a")).toEqual({ key: "record/a", seq: later, body: "later" });
    },
  },
  {
    name: "the same commit sent many times at once is applied once",
    async run(stage) {
      const { expect } = stage;
      const second = await stage.harness.second();
      for (let round = 0; round < 10; round += 1) {
        const commit = await stage.commitOf({ [`record/${round}`]: "once" });
        const sent = Array.from({ length: 6 }, (_, n) => stage.commit(commit, n % 2 === 0 ? stage.server : second));
        const seqs = (await Promise.all(sent)).map((answer) => stage.seqOf(answer));
        expect(new Set(seqs).size).toBe(1);
        expect((await stage.row(`record/${round}`)).seq).toBe(seqs[0]);
      }
    },
  },
  {
    name: "an id is known for as long as clients rely on it",
    async run(stage) {
      const commit = await stage.commitOf({ "record/a": "first" });
      const seq = stage.seqOf(await stage.commit(commit));
      await stage.harness.age(590_000);
      stage.expect(stage.seqOf(await stage.commit(commit))).toBe(seq);
    },
  },
  {
    name: "a refused commit leaves its id free",
    async run(stage) {
      const { expect } = stage;
      const seq = await stage.write({ "record/a": "theirs" });
      const commit = await stage.commitOf({ "record/a": "mine" });
      stage.conflictOf(await stage.commit(commit));
      const known = { ...commit, reads: new Map([["record/a", seq]]) };
      stage.seqOf(await stage.commit(known));
      expect(await stage.bodies(["record/a"])).toEqual(["mine"]);
    },
  },
  {
    name: "commits of every client that are there satisfy `seen`",
    async run(stage) {
      const second = await stage.harness.second();
      const one = await stage.commitOf({ "record/a": "A" });
      const two = await stage.commitOf({ "record/b": "B" });
      await stage.commit(one);
      await stage.commit(two, second);
      const after = await stage.commitOf({ "record/c": "C" }, { seen: [one.id, two.id] });
      stage.seqOf(await stage.commit(after));
    },
  },
  {
    name: "a missing commit of `seen` is a rewind, and nothing is applied",
    async run(stage) {
      const { expect } = stage;
      const there = await stage.commitOf({ "record/a": "A" });
      await stage.commit(there);
      for (const seen of [[stage.newId()], [there.id, stage.newId()]]) {
        const answer = await stage.commit(await stage.commitOf({ "record/b": "B" }, { seen }));
        expect(answer.kind).toBe("rewound");
        expect(await stage.bodies(["record/b"])).toEqual([null]);
      }
      const refused = await stage.commitOf({ "record/a": "theirs" });
      stage.conflictOf(await stage.commit(refused));
      const answer = await stage.commit(await stage.commitOf({ "record/b": "B" }, { seen: [refused.id] }));
      expect(answer.kind).toBe("rewound");
    },
  },
  {
    name: "a commit without writes checks `seen` too",
    async run(stage) {
      const answer = await stage.commit(await stage.commitOf({}, { seen: [stage.newId()] }));
      stage.expect(answer.kind).toBe("rewound");
    },
  },
  {
    name: "`seen` from so long ago that its ids may be forgotten is not checked",
    async run(stage) {
      const { expect } = stage;
      const now = await stage.now();
      const seen = [stage.newId()];
      const young = await stage.commit(await stage.commitOf({ "record/a": "A" }, { seen, seenAt: now - 280_000 }));
      expect(young.kind).toBe("rewound");
      stage.seqOf(await stage.commit(await stage.commitOf({ "record/a": "A" }, { seen, seenAt: now - 320_000 })));
    },
  },
  {
    name: "a commit that arrives after `notAfter` changes nothing",
    async run(stage) {
      const { expect } = stage;
      const now = await stage.now();
      for (const notAfter of [now - 1, now - 60_000, 0]) {
        const answer = await stage.commit(await stage.commitOf({ "record/a": "A" }, { notAfter }));
        expect(answer.kind).toBe("late");
      }
      expect(await stage.row("record/a")).toEqual({ key: "record/a", seq: 0, body: null });
      const late = await stage.commitOf({ "record/a": "A" }, { notAfter: now - 1 });
      expect((await stage.commit(late)).kind).toBe("late");
      // It was not remembered as done.
      stage.seqOf(await stage.commit({ ...late, notAfter: (await stage.now()) + 20_000 }));
      expect(await stage.bodies(["record/a"])).toEqual(["A"]);
    },
  },
  {
    name: "the checks come in their order: epoch, id, seen, notAfter, reads",
    async run(stage) {
      const { expect } = stage;
      const first = await stage.commitOf({ "record/a": "A" });
      const seq = stage.seqOf(await stage.commit(first));
      const wrong = { seen: [stage.newId()], notAfter: 0 };
      // A known id is answered although everything else is wrong by now, but not in another epoch.
      expect(stage.seqOf(await stage.commit({ ...first, ...wrong }))).toBe(seq);
      expect((await stage.commit({ ...first, ...wrong, epoch: stage.newEpoch() })).kind).toBe("new-epoch");
      const stale = await stage.commitOf({ "record/a": "B" });
      expect((await stage.commit({ ...stale, ...wrong })).kind).toBe("rewound");
      expect((await stage.commit({ ...stale, notAfter: 0 })).kind).toBe("late");
      expect((await stage.commit(stale)).kind).toBe("conflict");
    },
  },
];
