/** Which runs an MCP server keeps, and which it forgets. */

import type { ToolBox } from "@sandlot/client/tools";
import { expect, test } from "vitest";
import { type RunOwner, Runs, runNameFrom } from "../../src/mcp/runs.ts";

const owner = (thread: string, client = ""): RunOwner => ({ user: "ann", thread, client });

function openRuns() {
  const ended: ToolBox[] = [];
  const runs = new Runs(() => {
    const box = { end: async () => void ended.push(box) } as unknown as ToolBox;
    return box;
  });
  return { runs, ended };
}

test("the same owner and name is the same run; another of either is another", () => {
  const { runs } = openRuns();
  const own = runs.of(owner("t1")).toolBox;
  expect(runs.of(owner("t1")).toolBox).toBe(own);
  const others = [
    runs.of(owner("t1"), "a"),
    runs.of(owner("t1"), "b"),
    runs.of(owner("t1", "session s"), "a"),
    runs.of(owner("t2"), "a"),
    runs.of({ ...owner("t1"), user: "bob" }, "a"),
  ].map(({ toolBox }) => toolBox);
  expect(new Set([own, ...others]).size).toBe(6);
});

test("many runs in a thread forget that thread's oldest, and never one that is in use", () => {
  const { runs, ended } = openRuns();
  const neighbour = runs.of(owner("t2")).toolBox;
  const used = runs.of(owner("t1"), "used");
  const busy = used.busy();
  const oldest = runs.of(owner("t1"), "oldest").toolBox;
  for (let n = 0; n < 99; n++) runs.of(owner("t1"), `run ${n}`);
  expect(ended).toEqual([oldest]);
  expect(runs.of(owner("t1"), "used").toolBox).toBe(used.toolBox);
  expect(runs.of(owner("t2")).toolBox).toBe(neighbour);
  busy.done();
  // A use makes a run the newest; the others go before it.
  for (let n = 0; n < 99; n++) runs.of(owner("t1"), `more ${n}`);
  expect(ended).not.toContain(used.toolBox);
  runs.of(owner("t1"), "one more");
  expect(ended).toContain(used.toolBox);
  expect(ended).not.toContain(neighbour);
});

test("ending an owner ends all its runs and no others; closing ends the rest", async () => {
  const { runs, ended } = openRuns();
  const mine = [runs.of(owner("t1", "session s")), runs.of(owner("t1", "session s"), "a")];
  const other = runs.of(owner("t1"));
  await runs.end(owner("t1", "session s"));
  expect(ended).toEqual(mine.map(({ toolBox }) => toolBox));
  await runs.close();
  expect(ended).toHaveLength(3);
  expect(ended.at(-1)).toBe(other.toolBox);
});

test("a name is a text of some length", () => {
  expect(runNameFrom(undefined, "f")).toBeUndefined();
  expect(runNameFrom("x".repeat(128), "f")).toHaveLength(128);
  for (const wrong of ["", "x".repeat(129), 7, null, ["a"]])
    expect(() => runNameFrom(wrong, "f")).toThrow("1 to 128 characters");
});
