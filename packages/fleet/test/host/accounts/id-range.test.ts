/** The id range of each home. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isSandlotError } from "@sandlot/contract";
import { describe, expect, it, onTestFinished } from "vitest";
import type { IdRange } from "../../../src/host/accounts/id-range.ts";
import { reserveRange } from "../../../src/host/accounts/id-range.ts";
import { sharingProblem } from "../../../src/host/accounts/index.ts";

function machine() {
  const directory = mkdtempSync(join(tmpdir(), "sl-ids-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const registry = join(directory, "registry/ids.sqlite");
  const home = (name: string) => {
    const path = join(directory, name);
    mkdirSync(path, { recursive: true });
    return path;
  };
  const reserve = (name: string, configured: IdRange | null = null, number = 1) =>
    reserveRange({ home: home(name), configured, number, registry });
  return { home, registry, reserve };
}

function refusal(call: () => unknown): string {
  try {
    call();
  } catch (error) {
    if (isSandlotError(error, "config_invalid")) return error.details.problem;
    throw error;
  }
  return "nothing was refused";
}

describe("sandboxes have accounts of their own", () => {
  it("under root, where the ids exist, and otherwise it is said why not", () => {
    if (process.getuid?.() !== 0) expect(sharingProblem()).toContain("not root's");
    else {
      expect(sharingProblem({ first: 4_294_967_290, count: 100 })).toContain(
        "does not have the ids from 4294967290 on",
      );
      expect(sharingProblem({ first: 61_000, count: 100 })).toBeNull();
    }
  });
});

describe("the ids of a home", () => {
  it("are the same at every start, and no other home's", () => {
    const { reserve } = machine();
    const ranges = ["a", "b", "c"].map((name) => reserve(name));
    expect(["a", "b", "c"].map((name) => reserve(name))).toEqual(ranges);
    const firsts = ranges.map(({ first }) => first).sort();
    expect(new Set(firsts).size).toBe(3);
    for (const { first, count } of ranges)
      expect(firsts.filter((one) => one >= first && one < first + count)).toEqual([first]);
  });

  it("are refused when they overlap another home's, with its name", () => {
    const { home, reserve } = machine();
    reserve("a", { first: 100_000, count: 1_000 });
    expect(refusal(() => reserve("b", { first: 100_999, count: 10 }))).toContain(home("a"));
    expect(refusal(() => reserve("b", { first: 99_000, count: 1_001 }))).toContain("overlap");
    expect(reserve("b", { first: 101_000, count: 1_000 })).toEqual({ first: 101_000, count: 1_000 });
    const { first, count } = reserve("c");
    expect(refusal(() => reserve("d", { first: first + count - 1, count: 2 }))).toContain(home("c"));
  });

  it("begin where the number of the home says, or after it", () => {
    const { reserve } = machine();
    const [one, other, far] = [reserve("a", null, 7), reserve("b", null, 7), reserve("c", null, 9)];
    expect([other.first - one.first, far.first - one.first]).toEqual([one.count, 2 * one.count]);
  });

  it("are written down only when they change", () => {
    const { registry, reserve } = machine();
    reserve("a");
    const { mtimeNs } = statSync(registry, { bigint: true });
    reserve("a");
    expect(statSync(registry, { bigint: true }).mtimeNs).toBe(mtimeNs);
    reserve("a", { first: 100_000, count: 1_000 });
    expect(statSync(registry, { bigint: true }).mtimeNs).not.toBe(mtimeNs);
  });

  it("stay its own when a process of the home is configured otherwise, and another still has them", () => {
    const { reserve } = machine();
    const configured = { first: 100_000, count: 1_000 };
    reserve("a", configured);
    const automatic = reserve("a");
    expect(refusal(() => reserve("b", configured))).toContain("overlap");
    reserve("a", configured);
    expect(refusal(() => reserve("b", automatic))).toContain("overlap");
  });

  it("are free again when the home is gone, but not while something of it runs", async (context) => {
    if (process.getuid?.() !== 0) return context.skip("only root can run something as another account");
    const { home, reserve } = machine();
    const range = { first: 1_899_000_000, count: 10 };
    reserve("a", range);
    const child = spawn("sleep", ["60"], { uid: range.first + 1, gid: range.first + 1, stdio: "ignore" });
    rmSync(home("a"), { recursive: true });
    expect(refusal(() => reserve("b", range))).toContain("overlap");
    child.kill("SIGKILL");
    await once(child, "exit");
    expect(reserve("b", range)).toEqual(range);
  });
});
