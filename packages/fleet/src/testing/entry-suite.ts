/**
 * Defines `store/entries.ts` as tests. Every store with shared entries passes it.
 *
 *   describeEntries({ name: "memory", tools: { describe, it, expect }, open: async () => ({ first, second, dispose }) });
 */

import { isSandlotError } from "@sandlot/contract";
import { ENTRY_MAX_BYTES, type SharedEntries } from "../store/entries.ts";
import type { SuiteTools } from "./store-suite/stage.ts";

export interface EntryHarness {
  /** Two connections to the same, empty store. */
  readonly first: SharedEntries;
  readonly second: SharedEntries;
  dispose(): Promise<void>;
}

export interface EntrySuiteOptions {
  readonly name: string;
  readonly tools: SuiteTools;
  open(): Promise<EntryHarness>;
}

interface EntryCase {
  readonly name: string;
  run(harness: EntryHarness, expect: SuiteTools["expect"]): Promise<void>;
}

const CASES: readonly EntryCase[] = [
  {
    name: "an entry that one connection wrote is read through another",
    async run({ first, second }, expect) {
      const written = await first.put("key/a", '{"x":1}', null);
      expect(written.kind).toBe("put");
      const seq = written.kind === "put" ? written.seq : 0;
      expect(await second.get("key/a")).toEqual({ name: "key/a", body: '{"x":1}', seq });
      expect(await second.list("key/")).toEqual([{ name: "key/a", body: '{"x":1}', seq }]);
    },
  },
  {
    name: "a missing entry is null, and a list of none is empty",
    async run({ first }, expect) {
      expect(await first.get("key/none")).toBe(null);
      expect(await first.list("key/")).toEqual([]);
      expect(await first.delete("key/none", 1)).toBe(false);
    },
  },
  {
    name: "a list has exactly the names that begin with its prefix",
    async run({ first }, expect) {
      for (const name of ["key/a", "key/ab", "keys/a", "aio/a"]) await first.put(name, name, null);
      const names = async (prefix: string) => (await first.list(prefix)).map(({ name }) => name).sort();
      expect(await names("key/")).toEqual(["key/a", "key/ab"]);
      expect(await names("key/ab")).toEqual(["key/ab"]);
      expect(await names("none/")).toEqual([]);
    },
  },
  {
    name: "of two writers that saw the same entry one loses",
    async run({ first, second }, expect) {
      const made = await Promise.all([first.put("key/a", "1", null), second.put("key/a", "2", null)]);
      expect(made.map(({ kind }) => kind).sort()).toEqual(["changed", "put"]);
      const present = await first.get("key/a");
      const seq = present?.seq ?? 0;
      const changed = await Promise.all([first.put("key/a", "3", seq), second.put("key/a", "4", seq)]);
      expect(changed.map(({ kind }) => kind).sort()).toEqual(["changed", "put"]);
      const won = changed[0]?.kind === "put" ? "3" : "4";
      expect((await second.get("key/a"))?.body).toBe(won);
    },
  },
  {
    name: "a number that is old neither writes nor deletes",
    async run({ first, second }, expect) {
      await first.put("key/a", "1", null);
      const old = (await first.get("key/a"))?.seq ?? 0;
      expect((await second.put("key/a", "2", old)).kind).toBe("put");
      expect(await first.put("key/a", "3", old)).toEqual({ kind: "changed" });
      expect(await first.delete("key/a", old)).toBe(false);
      expect((await first.get("key/a"))?.body).toBe("2");
    },
  },
  {
    name: "an entry that was deleted and written again has another number",
    async run({ first, second }, expect) {
      await first.put("key/a", "1", null);
      const old = (await first.get("key/a"))?.seq ?? 0;
      expect(await second.delete("key/a", old)).toBe(true);
      expect(await first.get("key/a")).toBe(null);
      expect(await first.put("key/a", "1", old)).toEqual({ kind: "changed" });
      expect((await first.put("key/a", "1", null)).kind).toBe("put");
      expect(await second.delete("key/a", old)).toBe(false);
      expect((await second.get("key/a"))?.body).toBe("1");
    },
  },
  {
    name: "twenty writers that count in one entry lose nothing",
    async run({ first, second }, expect) {
      await first.put("count/a", "0", null);
      const raise = async (entries: SharedEntries) => {
        for (;;) {
          const present = await entries.get("count/a");
          if (present === null) throw new Error("the entry is gone");
          const answer = await entries.put("count/a", String(Number(present.body) + 1), present.seq);
          if (answer.kind === "put") return;
        }
      };
      await Promise.all(Array.from({ length: 20 }, (_, index) => raise(index % 2 === 0 ? first : second)));
      expect((await first.get("count/a"))?.body).toBe("20");
    },
  },
  {
    name: "an entry of the largest size is kept, a larger one and a wrong name are refused",
    async run({ first, second }, expect) {
      const whole = "é".repeat(ENTRY_MAX_BYTES / 2);
      expect((await first.put("key/a", whole, null)).kind).toBe("put");
      expect((await second.get("key/a"))?.body === whole).toBe(true);
      expect(await refusalOf(first.put("key/b", `${whole}x`, null))).toBe("payload_too_large");
      for (const name of ["", "key", "key/", "../a", "key/a/b", "KEY/a", "key/a b"])
        expect(await refusalOf(first.put(name, "x", null)), name).toBe("invalid_request");
      expect((await first.list("")).map(({ name }) => name)).toEqual(["key/a"]);
    },
  },
];

async function refusalOf(answer: Promise<unknown>): Promise<string> {
  try {
    return `no refusal: ${JSON.stringify(await answer)}`;
  } catch (error) {
    return isSandlotError(error) ? error.code : String(error);
  }
}

export function describeEntries({ name, tools: { describe, it, expect }, open }: EntrySuiteOptions): void {
  describe(`shared entries ${name}`, () => {
    for (const { name: title, run } of CASES)
      it(title, async () => {
        const harness = await open();
        try {
          await run(harness, expect);
        } finally {
          await harness.dispose();
        }
      });
  });
}
