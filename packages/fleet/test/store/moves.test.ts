/** The table of moves is binding: every write, change or removal of a record is a move in it. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { BlueprintHash, EngineRef, Generation, InstanceId, SandboxId, Token } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import { newMemoryTables } from "../../src/store/memory/memory-store.ts";
import { MOVES, type SandboxRecord, type State } from "../../src/store/record.ts";
import { firstRecord } from "../../src/store/transactions/creation.ts";
import { erase, insert, move } from "../../src/store/transactions/rows.ts";
import { VirtualTime } from "../support/virtual-time.ts";

const STATES = ["creating", "ready", "stopping"] as const;
const store = join(import.meta.dirname, "../../src/store");

function setting() {
  const tables = newMemoryTables(new VirtualTime().newWorld());
  const first = {
    ...{ sandboxId: "s1" as SandboxId, token: "token" as Token, backend: "memory", engine: "here" },
    blueprint: "default",
    ...{ blueprintHash: "hash" as BlueprintHash, user: null, thread: null, generation: 1 as Generation },
  };
  const actor = "a" as InstanceId;
  const recordIn = (state: State): SandboxRecord => {
    if (state === "creating") return firstRecord(tables, { ...first, state, actor });
    if (state === "stopping") return { ...firstRecord(tables, { ...first, state, actor }), reason: "idle" };
    return { ...firstRecord(tables, { ...first, state, actor: null }), ref: "ref" as EngineRef };
  };
  return { tables, recordIn };
}

describe("a planted wrong move is stopped", () => {
  test("a second first record, whatever the state of the sandbox", () => {
    for (const from of STATES) {
      for (const to of STATES) {
        const { tables, recordIn } = setting();
        const first = insert(tables, recordIn(from));
        expect(() => insert(tables, recordIn(to))).toThrow(`is ${from}, so it has a record already`);
        expect(tables.record(first.sandboxId)).toEqual(first);
      }
    }
  });

  test("from one state to another", () => {
    for (const from of STATES) {
      for (const to of STATES.filter(
        (state) => state !== from && !(MOVES[from] as readonly string[]).includes(state),
      )) {
        const { tables, recordIn } = setting();
        const first = insert(tables, recordIn(from));
        expect(() => move(tables, first, recordIn(to))).toThrow(`cannot move from ${from} to ${to}`);
        expect(tables.record(first.sandboxId)).toEqual(first);
      }
    }
  });

  test("to absent, from anything but stopping", () => {
    const { tables, recordIn } = setting();
    for (const from of ["creating", "ready"] as const) {
      expect(() => erase(tables, insert(setting().tables, recordIn(from)))).toThrow(
        `cannot move from ${from} to absent`,
      );
    }
    const stopping = insert(tables, recordIn("stopping"));
    erase(tables, stopping);
    expect(tables.record(stopping.sandboxId)).toBeNull();
  });
});

test("no transaction writes or removes a record but through rows.ts", () => {
  const transactions = readdirSync(join(store, "transactions"));
  expect(transactions).toContain("rows.ts");
  const sources = [...transactions.map((name) => join("transactions", name)), "transactional-store.ts"];
  const writing = sources.filter((name) =>
    /\b(putRecord|deleteRecord)\b/.test(readFileSync(join(store, name), "utf8")),
  );
  expect(writing).toEqual([join("transactions", "rows.ts")]);
});
