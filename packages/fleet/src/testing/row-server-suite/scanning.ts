/** Scans: first every row, then what was written since, in pages. */

import type { RowServer } from "../../store/rows/row-server.ts";
import type { RowServerCase, RowStage } from "./stage.ts";

export const scanningCases: readonly RowServerCase[] = [
  {
    name: "an empty database has one empty page",
    async run(stage) {
      const page = await stage.server.scan(null, 10, stage.patience());
      stage.expect(page).toMatchObject({ rows: [], more: false, epoch: stage.epoch });
    },
  },
  {
    name: "the first scan gives every existing row, in pages of the requested size",
    async run(stage) {
      const { expect } = stage;
      const rows = Object.fromEntries(Array.from({ length: 25 }, (_, n) => [`record/${n}`, `body ${n}`]));
      const seq = await stage.write(rows);
      await stage.write({ "record/3": null, "record/24": null });
      const mirror = stage.newMirror();
      await mirror.follow(4);
      const { "record/3": _, "record/24": __, ...left } = rows;
      expect(Object.fromEntries(mirror.rows)).toEqual(left);
      expect(mirror.pages).toBeGreaterThanOrEqual(6);
      const page = await stage.server.scan(null, 1_000, stage.patience());
      expect(page?.more).toBe(false);
      const present = page?.rows.filter(({ body }) => body !== null) ?? [];
      expect(present.length).toBe(23);
      expect(present.every((row) => row.seq === seq)).toBe(true);
    },
  },
  {
    name: "the rows of one big commit are spread over pages",
    async run(stage) {
      const rows = Object.fromEntries(Array.from({ length: 60 }, (_, n) => [`record/${n}`, `${n}`]));
      const mirror = stage.newMirror();
      await mirror.follow(7);
      await stage.write(rows);
      await mirror.follow(7);
      stage.expect(Object.fromEntries(mirror.rows)).toEqual(rows);
    },
  },
  {
    name: "a later scan gives what was written since, and deletions",
    async run(stage) {
      const { expect } = stage;
      await stage.write({ "record/a": "A", "record/b": "B", "record/c": "C" });
      const first = await stage.server.scan(null, 100, stage.patience());
      await stage.write({ "record/a": "A2", "record/d": "D" });
      const gone = await stage.write({ "record/b": null });
      const page = await stage.server.scan(first?.cursor ?? null, 100, stage.patience());
      const rows = new Map(page?.rows.map((row) => [row.key, row]));
      expect(rows.get("record/a")?.body).toBe("A2");
      expect(rows.get("record/d")?.body).toBe("D");
      expect(rows.get("record/b")).toEqual({ key: "record/b", seq: gone, body: null });
      // What did not change may appear again, but not for ever.
      const mirror = stage.newMirror();
      await mirror.follow();
      const before = mirror.pages;
      await mirror.follow(100);
      expect(mirror.pages).toBe(before + 1);
    },
  },
  {
    name: "at rest a scan costs one small page",
    async run(stage) {
      const { expect } = stage;
      await stage.write(Object.fromEntries(Array.from({ length: 300 }, (_, n) => [`record/${n}`, "x"])));
      let page = await stage.server.scan(null, 1_000, stage.patience());
      await stage.until("the scan has nothing to repeat", async () => {
        page = await stage.server.scan(page?.cursor ?? null, 1_000, stage.patience());
        return page?.rows.length === 0;
      });
      expect(page?.more).toBe(false);
    },
  },
  {
    name: "a mirror that follows misses nothing while others write and delete",
    async run(stage) {
      const { expect } = stage;
      const second = await stage.harness.second();
      let done = false;
      const write = async (n: number): Promise<void> => {
        const server = n % 2 === 0 ? stage.server : second;
        for (let round = 0; round < 30; round += 1) await writeSomething(stage, server, n, round);
      };
      const mirror = stage.newMirror(second);
      const follow = async (): Promise<void> => {
        while (!done) await mirror.follow(3);
      };
      const following = follow();
      await Promise.all([0, 1, 2, 3, 4, 5].map(write)).finally(() => {
        done = true;
      });
      await following;
      await mirror.follow();
      const fresh = stage.newMirror();
      await fresh.follow(1_000);
      expect(sorted(mirror.rows)).toEqual(sorted(fresh.rows));
      const keys = [...fresh.rows.keys()];
      expect(await stage.bodies(keys)).toEqual([...fresh.rows.values()]);
    },
  },
  {
    name: "a first scan in pages misses nothing that changes between its pages",
    async run(stage) {
      const { expect } = stage;
      const rows = Object.fromEntries(Array.from({ length: 30 }, (_, n) => [`record/${n}`, "old"]));
      await stage.write(rows);
      const seen = new Map<string, string | null>();
      let cursor: string | null = null;
      for (let n = 0; ; n += 1) {
        const page: Awaited<ReturnType<RowServer["scan"]>> = await stage.server.scan(cursor, 5, stage.patience());
        for (const { key, body } of page?.rows ?? []) seen.set(key, body);
        cursor = page?.cursor ?? null;
        if (n < 5)
          await stage.write({ [`record/${n}`]: null, [`record/${29 - n}`]: "new", [`record/added-${n}`]: "new" });
        else if (page?.more !== true) break;
      }
      const present = new Map([...seen].filter(([, body]) => body !== null));
      const fresh = stage.newMirror();
      await fresh.follow();
      expect(sorted(present)).toEqual(sorted(fresh.rows));
    },
  },
  {
    name: "a cursor so old that deletions are forgotten is refused, never answered with a gap",
    async run(stage) {
      const mirror = stage.newMirror();
      await stage.write({ "record/a": "A", "record/b": "B" });
      await mirror.follow();
      await stage.write({ "record/a": null });
      await stage.harness.age(700_000);
      await stage.write({ "record/c": "C" });
      await mirror.follow();
      stage.expect(sorted(mirror.rows)).toEqual([
        ["record/b", "B"],
        ["record/c", "C"],
      ]);
    },
  },
];

async function writeSomething(stage: RowStage, server: RowServer, n: number, round: number): Promise<void> {
  const own = `record/${n}-${round % 7}`;
  const shared = `count/${round % 3}`;
  const rows = await stage.rows([own, shared], server);
  const reads = new Map(rows.map(({ key, seq }) => [key, seq]));
  const body = round % 3 === 2 ? null : `${n} ${round}`;
  // Losing a shared row is an ordinary answer.
  const answer = await stage.commit(
    await stage.commitOf({ [own]: body, [shared]: `${n} ${round}` }, { reads }),
    server,
  );
  if (answer.kind === "conflict") stage.expect(answer.rows[0]?.key).toBe(shared);
}

function sorted(rows: ReadonlyMap<string, string | null>): (readonly [string, string | null])[] {
  return [...rows].sort(([one], [other]) => (one < other ? -1 : 1));
}
