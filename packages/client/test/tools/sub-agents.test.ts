/**
 * Twelve sub-agents in one thread, a thousand calls, and a sandbox that is killed under them again and again: no edit is
 * lost, no call is answered for another, only calls that were under way at a kill fail, and no lease is left.
 */

import { expect, test } from "vitest";
import { sandlotTools, type ToolBox, type ToolOutput } from "../../src/tools/index.ts";
import { openToolStage, STAGE_BACKENDS } from "./tool-stage.ts";

const AGENTS = 12;
const CALLS = 1_008;
const KILLS = 6;
const SHARED = "/mnt/user-data/workspace/shared.txt";

test.each(STAGE_BACKENDS)(
  "twelve sub-agents, a thousand calls, six kills, on %s",
  { timeout: 240_000 },
  async (backend) => {
    await using stage = await openToolStage(backend);
    await using parent = sandlotTools(stage.fleet, { thread: "t1" });
    const lines = Array.from({ length: AGENTS }, (_, agent) => `agent ${agent}: 0;`);
    await parent.call("write_file", { path: SHARED, content: `${lines.join("\n")}\n` });
    let calls = 0;
    let kills = 0;
    const underWay = new Set<symbol>();
    const struck = new Set<symbol>();
    // Killed is one moment, dead a slightly later one; what begins in between is struck as well.
    const strike = () => {
      for (const call of underWay) struck.add(call);
    };
    stage.fleet.events.on(strike, "sandbox-lost");

    async function call(tools: ToolBox, name: string, input: Record<string, unknown>): Promise<ToolOutput> {
      const mine = Symbol(name);
      underWay.add(mine);
      calls += 1;
      if (kills < KILLS && calls > ((kills + 1) * CALLS) / (KILLS + 1)) {
        kills += 1;
        await stage.kill("t1");
        // Everything that has begun and not ended may have been struck.
        for (const other of underWay) struck.add(other);
      }
      const output = await tools.call(name, input);
      underWay.delete(mine);
      if (output.isError && output.code !== "read_first") {
        expect(output.code, output.text).toBe("sandbox_lost");
        expect(struck.has(mine), "a call failed that was not under way at a kill").toBe(true);
      }
      return output;
    }

    async function work(agent: number): Promise<number> {
      await using tools = sandlotTools(stage.fleet, { thread: "t1", purpose: `sub-agent ${agent}` });
      let count = 0;
      while (calls < CALLS) {
        const token = `agent-${agent}-call-${calls}`;
        const echoed = await call(tools, "bash", {
          command: `mkdir -p own-${agent}; cd own-${agent}; echo ${token}; pwd; cd ..`,
        });
        if (!echoed.isError) expect(echoed.facts.stdout).toBe(`${token}\n/mnt/user-data/workspace/own-${agent}\n`);
        const seen = await call(tools, "read_file", { path: SHARED });
        const present = Number(new RegExp(`agent ${agent}: (\\d+);`).exec(seen.text)?.[1] ?? Number.NaN);
        if (seen.isError) continue;
        // An edit that was under way at a kill was made or not; reading shows which. Nothing else may have changed our line.
        expect([count, count + 1]).toContain(present);
        count = present;
        const edit = { path: SHARED, old_str: `agent ${agent}: ${count};`, new_str: `agent ${agent}: ${count + 1};` };
        const edited = await call(tools, "str_replace", edit);
        if (edited.code === null) count += 1;
      }
      return count;
    }

    const counts = await Promise.all(Array.from({ length: AGENTS }, (_, agent) => work(agent)));
    const final = (await parent.call("read_file", { path: SHARED })).text;
    for (const [agent, count] of counts.entries()) {
      const last = Number(new RegExp(`agent ${agent}: (\\d+);`).exec(final)?.[1]);
      // The very last edit may be one of which it is not known whether it was made.
      expect([count, count + 1]).toContain(last);
    }
    expect(final.split("\n").filter((line) => line.startsWith("agent "))).toHaveLength(AGENTS);
    expect(calls).toBeGreaterThanOrEqual(CALLS);
    expect(kills).toBe(KILLS);
    expect(counts.reduce((sum, count) => sum + count)).toBeGreaterThan(AGENTS);
    expect(stage.events.filter(({ type }) => type === "sandbox-created")).toHaveLength(1 + KILLS);
    await parent.end();
    expect(stage.leaseCount()).toBe(0);
  },
);
