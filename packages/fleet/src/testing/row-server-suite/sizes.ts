/** Odd and big keys, bodies and commits. */

import { BODY_MAX_BYTES, COMMIT_ROWS_MAX, KEY_MAX_CHARS } from "../../store/rows/row-server.ts";
import type { RowServerCase } from "./stage.ts";

const ODD = [
  "record/with space",
  "record/'; DROP TABLE rows; --",
  'record/"quoted"',
  "record/back\\slash",
  "record/per%cent_under*star?[a-z]",
  "record/{brace}:colon",
  "record/a/b//c/",
  "record/line\nbreak\ttab\r",
  "record/ünïcödé 漢字 🜁",
  // Two ways to write one character are two keys.
  "record/\u00e9",
  "record/e\u0301",
  "record/UPPER",
  "record/upper",
  "record/trailing ",
  "record/trailing",
  "record/0",
  "record/00",
  "record/__proto__",
  "record/",
  "generation",
];

export const sizeCases: readonly RowServerCase[] = [
  {
    name: "odd keys are all different, and come back as they were",
    async run(stage) {
      const { expect } = stage;
      const writes = new Map(ODD.map((key, n) => [key, `body ${n}`]));
      const reads = new Map(ODD.map((key) => [key, 0]));
      stage.seqOf(await stage.commit(await stage.commitOf({}, { reads, writes })));
      expect((await stage.rows(ODD)).map(({ key, body }) => [key, body])).toEqual([...writes]);
      const mirror = stage.newMirror();
      await mirror.follow();
      expect(new Set(mirror.rows.keys())).toEqual(new Set(ODD));
      const rows = stage.conflictOf(await stage.commit(await stage.commitOf({}, { reads })));
      expect(new Set(Object.values(rows).map(({ key }) => key))).toEqual(new Set(ODD));
    },
  },
  {
    name: "odd bodies come back as they were",
    async run(stage) {
      const bodies = [
        "",
        " ",
        "null",
        "{}",
        "\u0001\u001f",
        "'\"\\",
        "🜁 漢字 é e\u0301",
        "a\nb\r\nc\t",
        "0",
        "\ufeffbom",
        "1e999",
      ];
      const rows = Object.fromEntries(bodies.map((body, n) => [`record/${n}`, body]));
      await stage.write(rows);
      stage.expect(await stage.bodies(Object.keys(rows))).toEqual(bodies);
      const mirror = stage.newMirror();
      await mirror.follow();
      stage.expect(Object.fromEntries(mirror.rows)).toEqual(rows);
    },
  },
  {
    name: "the longest key and the biggest body come back as they were, also in a conflict and in a scan",
    async run(stage) {
      const { expect } = stage;
      const key = `record/${"k".repeat(KEY_MAX_CHARS - 7)}`;
      const body = "é".repeat(BODY_MAX_BYTES / 2);
      await stage.write({ [key]: body });
      expect((await stage.row(key)).body === body).toBe(true);
      const rows = stage.conflictOf(await stage.commit(await stage.commitOf({ [key]: "small" })));
      expect(rows[key]?.body === body).toBe(true);
      const mirror = stage.newMirror();
      await mirror.follow();
      expect(mirror.rows.get(key) === body).toBe(true);
    },
  },
  {
    name: "a commit may read and write thousands of rows",
    async run(stage) {
      const { expect } = stage;
      const keys = Array.from({ length: COMMIT_ROWS_MAX }, (_, n) => `record/${n}`);
      const seq = await stage.write(Object.fromEntries(keys.map((key) => [key, `{"sandboxId":"${key}"}`])));
      const rows = await stage.rows(keys);
      expect(rows.length).toBe(COMMIT_ROWS_MAX);
      expect(rows.every((row, n) => row.seq === seq && row.key === keys[n])).toBe(true);
      const reads = new Map(keys.map((key) => [key, 0]));
      const conflict = stage.conflictOf(await stage.commit(await stage.commitOf({}, { reads })));
      expect(Object.keys(conflict).length).toBe(COMMIT_ROWS_MAX);
      const mirror = stage.newMirror();
      await mirror.follow(1_000);
      expect(mirror.rows.size).toBe(COMMIT_ROWS_MAX);
    },
  },
  {
    name: "`seen` may name dozens of commits",
    async run(stage) {
      const ids: string[] = [];
      for (let n = 0; n < 40; n += 1) {
        const commit = await stage.commitOf({ [`record/${n}`]: "x" });
        await stage.commit(commit);
        ids.push(commit.id);
      }
      stage.seqOf(await stage.commit(await stage.commitOf({ "record/last": "x" }, { seen: ids })));
      const lost = [...ids, stage.newId()];
      stage
        .expect((await stage.commit(await stage.commitOf({ "record/more": "x" }, { seen: lost }))).kind)
        .toBe("rewound");
    },
  },
];
