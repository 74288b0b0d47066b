/** The tool `undo_last_turn`: off unless it is named, and under no other holder. */

import { describe, expect, test } from "vitest";
import { OPTIONAL_TOOLS, SANDBOX_TOOLS, sandlotTools } from "../../src/tools/index.ts";
import { openToolStage } from "./tool-stage.ts";

const NAMES = ["bash", "undo_last_turn"];
const NAME = { description: "undo" };

describe("undo_last_turn", () => {
  test("is off unless it is named", async () => {
    await using stage = await openToolStage();
    await using usual = sandlotTools(stage.fleet, { thread: "t1" });
    expect(usual.tools.map(({ name }) => name)).toEqual(SANDBOX_TOOLS.map(({ name }) => name));
    expect((await usual.call("undo_last_turn", NAME)).code).toBe("unknown_tool");
    expect(OPTIONAL_TOOLS.map(({ name }) => name)).toEqual(["undo_last_turn"]);
    await using named = sandlotTools(stage.fleet, { thread: "t1", tools: NAMES });
    expect(named.tools.map(({ name }) => name)).toEqual(NAMES);
  });

  test("takes the files back, and the run goes on in a new sandbox that it is told of", async () => {
    await using stage = await openToolStage();
    await using tools = sandlotTools(stage.fleet, { thread: "t1", tools: NAMES });
    await tools.call("bash", { command: "echo one > file" });
    await stage.fleet.checkpoints.take({ thread: "t1" });
    await tools.call("bash", { command: "echo two > file" });
    const undone = await tools.call("undo_last_turn", NAME);
    expect(undone).toMatchObject({ isError: false, code: null });
    const { text } = await tools.call("bash", { command: "cat file" });
    expect(text).toContain("one");
    expect(text).toContain("The sandbox was replaced by a new one");
  });

  test("is refused while another run uses the sandbox, and where there is nothing to undo", async () => {
    await using stage = await openToolStage();
    await using tools = sandlotTools(stage.fleet, { thread: "t1", tools: NAMES });
    await tools.call("bash", { command: "echo one > file" });
    expect((await tools.call("undo_last_turn", NAME)).code).toBe("nothing_to_undo");
    await using other = sandlotTools(stage.fleet, { thread: "t1" });
    await other.call("bash", { command: "echo two > file" });
    expect((await tools.call("undo_last_turn", NAME)).code).toBe("sandbox_in_use");
    expect((await other.call("bash", { command: "cat file" })).text).toContain("two");
  });

  test("says so where the source has no checkpoints", async () => {
    await using stage = await openToolStage();
    const source = { acquire: stage.fleet.acquire };
    await using tools = sandlotTools(source, { thread: "t1", tools: NAMES });
    expect((await tools.call("undo_last_turn", NAME)).code).toBe("no_checkpoints");
  });
});
