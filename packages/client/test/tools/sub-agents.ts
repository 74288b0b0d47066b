/**
 * Twelve sub-agents in one thread, a thousand calls, and a sandbox that is killed under them again and again: no edit
 * is lost, no call gets another's result, only calls running at a kill fail, and no lease is left.
 */

import { expect } from "vitest";
import { sandlotTools, type ToolBox, type ToolOutput } from "../../src/tools/index.ts";
import { openToolStage, type StageKind, type ToolStage } from "./tool-stage.ts";

const AGENTS = 12;
const CALLS = 1_008;
const SHARED = "/mnt/user-data/workspace/shared.txt";
export const WORKING_MS = 240_000;

export async function letThemWork(kind: StageKind, kills = 6): Promise<void> {
  await using stage = await openToolStage(kind);
  await using parent = sandlotTools(stage.source, { thread: "t1" });
  const lines = Array.from({ length: AGENTS }, (_, agent) => `agent ${agent}: 0;`);
  await parent.call("write_file", { path: SHARED, content: `${lines.join("\n")}\n` });
  const watch = new Watch(stage, kills);
  const begunAt = performance.now();
  const works = await Promise.allSettled(Array.from({ length: AGENTS }, (_, agent) => work(stage, watch, agent)));
  const counts = works.map((ended) => {
    if (ended.status === "rejected") throw ended.reason;
    return ended.value;
  });
  const seconds = (performance.now() - begunAt) / 1000;
  const final = (await parent.call("read_file", { path: SHARED })).text;
  for (const [agent, count] of counts.entries()) {
    // The result of the very last edit may be unknown.
    expect([count, count + 1]).toContain(countOf(agent, final));
  }
  const edits = counts.reduce((sum, count) => sum + count);
  expect(final.split("\n").filter((line) => line.startsWith("agent "))).toHaveLength(AGENTS);
  expect(watch.calls).toBeGreaterThanOrEqual(CALLS);
  expect(watch.kills).toBe(kills);
  expect(watch.lost, "calls that a kill has struck").toBeGreaterThan(0);
  expect(edits).toBeGreaterThan(AGENTS);
  const lost = stage.events.flatMap((event) => (event.type === "sandbox-lost" ? [event.generation] : []));
  expect(new Set(lost).size).toBe(kills);
  await parent.end();
  await stage.expectNoLease();
  const [sandbox] = await stage.fleet.list();
  expect((await stage.fleet.explain(String(sandbox?.sandboxId))).holders).toEqual([]);
  console.log(
    `${AGENTS} sub-agents on ${typeof kind === "string" ? kind : "docker"}: ${watch.calls} calls in ${seconds.toFixed(1)} s, ${watch.kills} kills, ` +
      `${edits} edits made and 0 lost, ${watch.refused} refused until read again, ${watch.lost} calls lost with their sandbox, ` +
      `${watch.told} told of a new one, 0 leases left`,
  );
}

/** Counts, kills when it is time, and knows which calls a kill may have hit. */
class Watch {
  calls = 0;
  kills = 0;
  lost = 0;
  refused = 0;
  told = 0;
  readonly #stage: ToolStage;
  readonly #killsMax: number;
  readonly #underWay = new Set<symbol>();
  readonly #struck = new Set<symbol>();

  constructor(stage: ToolStage, killsMax: number) {
    this.#stage = stage;
    this.#killsMax = killsMax;
    // Death follows the kill slightly later; calls that begin in between are hit as well.
    stage.fleet.events.on(() => this.#strike(), "sandbox-lost");
  }

  async call(tools: ToolBox, name: string, input: Record<string, unknown>): Promise<ToolOutput> {
    const mine = Symbol(name);
    this.#underWay.add(mine);
    this.calls += 1;
    if (this.kills < this.#killsMax && this.calls > ((this.kills + 1) * CALLS) / (this.#killsMax + 1)) {
      this.kills += 1;
      await this.#stage.kill("t1");
      this.#strike();
    }
    const output = await tools.call(name, input);
    this.#underWay.delete(mine);
    if (output.text.includes("The sandbox was replaced")) this.told += 1;
    // Through another client of the gateway the file may change between reading and writing; the sandbox then says so.
    if (output.code === "read_first" || output.code === "file_changed") this.refused += 1;
    else if (output.isError) {
      this.lost += 1;
      expect(output.code, output.text).toBe("sandbox_lost");
      expect(this.#struck.has(mine), "a call failed that was not under way at a kill").toBe(true);
    }
    return output;
  }

  /** Every call that has begun and not ended may have been hit. */
  #strike(): void {
    for (const call of this.#underWay) this.#struck.add(call);
  }
}

async function work(stage: ToolStage, watch: Watch, agent: number): Promise<number> {
  await using tools = sandlotTools(stage.sourceOf(agent), { thread: "t1", purpose: `sub-agent ${agent}` });
  let count = 0;
  while (watch.calls < CALLS) {
    const token = `agent-${agent}-call-${watch.calls}`;
    const echoed = await watch.call(tools, "bash", {
      command: `mkdir -p own-${agent}; cd own-${agent}; echo ${token}; sleep 0.02; pwd; cd ..`,
    });
    if (!echoed.isError) expect(echoed.facts.stdout).toBe(`${token}\n/mnt/user-data/workspace/own-${agent}\n`);
    const seen = await watch.call(tools, "read_file", { path: SHARED });
    if (seen.isError) continue;
    const present = countOf(agent, seen.text);
    // An edit running at a kill was made or not; reading shows which. Nothing else may have changed our line.
    expect([count, count + 1]).toContain(present);
    count = present;
    const edit = { path: SHARED, old_str: `agent ${agent}: ${count};`, new_str: `agent ${agent}: ${count + 1};` };
    const edited = await watch.call(tools, "str_replace", edit);
    if (edited.code === null) count += 1;
  }
  return count;
}

function countOf(agent: number, text: string): number {
  return Number(new RegExp(`agent ${agent}: (\\d+);`).exec(text)?.[1] ?? Number.NaN);
}
