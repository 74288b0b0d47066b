/** A sandbox that hits its limits is reported, whichever part did: a command, a terminal, background work. */

import { afterAll, describe, expect, it } from "vitest";
import type { EngineEvent } from "../../../src/backend/backend.ts";
import { LimitWatch } from "../../../src/host/limits/index.ts";
import type { LimitGroup, LimitHits } from "../../../src/host/limits/limits.ts";
import { blueprint, isRoot, onStage, removeDaemon, world } from "../../backends/local/local-harness.ts";
import { PATIENCE } from "./stage.ts";

const MIB = 1024 * 1024;
const HUNGRY = `perl -e 'my $x = "a" x (300 << 20)'`;
/** However slow the machine is, no process ends before one was refused. */
const FORKING = `perl -e 'for (1 .. 80) { my $p = fork; last unless defined $p; if (!$p) { sleep 60; exit } push @k, $p } kill 9, @k'`;

type LimitHit = Extract<EngineEvent, { type: "limit-hit" }>;

afterAll(removeDaemon);

describe("a sandbox that runs into a limit", { timeout: 120_000 * PATIENCE }, () => {
  it("is reported with its kind, from any process", (context) => {
    if (!isRoot) return context.skip("control groups take root");
    return onStage(async (stage, { backend }) => {
      const limits = { memoryBytes: 160 * MIB, pidsMax: 64, diskBytes: 20 * MIB };
      const { target } = await stage.make(stage.newKey(), { blueprint: { ...blueprint, limits } });
      const { sandbox } = await stage.attach(target);
      const hits: LimitHit[] = [];
      const stop = backend.watch((event) => {
        if (event.type === "limit-hit") hits.push(event);
      });
      const next = async (limit: LimitHit["limit"]) => {
        await expect.poll(() => hits.map((hit) => hit.limit), { timeout: 20_000 * PATIENCE }).toContain(limit);
        const [hit] = hits.splice(0);
        expect(hit).toMatchObject({ sandboxId: target.sandboxId, limit });
        return hit?.because;
      };

      const result = await sandbox.exec(HUNGRY);
      // The report comes before the result, in the same words.
      expect(hits.map(({ because }) => because)).toEqual([
        expect.stringMatching(/^out of memory: the sandbox may use 167772160/),
      ]);
      expect(result.stderr).toContain(await next("memory"));

      const terminal = await sandbox.terminals.open({ columns: 80, rows: 24 });
      terminal.write(`${HUNGRY}\n`);
      expect(await next("memory")).toContain("out of memory");
      await terminal.detach();
      await sandbox.terminals.close(terminal.terminalId);

      expect((await sandbox.exec(`(${HUNGRY}) >/dev/null 2>&1 &`)).exitCode).toBe(0);
      expect(await next("memory")).toContain("out of memory");

      await sandbox.exec(FORKING);
      expect(await next("pids")).toMatch(/^too many processes: the sandbox may have 64/);

      await sandbox.exec(["dd", "if=/dev/zero", "of=one", "bs=1M", "count=500"]);
      expect(await next("disk")).toMatch(/^disk_limit_exceeded: the workspace may hold 20971520 bytes/);

      await sandbox.exec("rm -f one");
      expect((await sandbox.exec("true")).exitCode).toBe(0);
      stop();
    });
  });
});

describe("a watch over counters", () => {
  it("reports no earlier hits, none twice, and at most one a second", () => {
    const counts: { hits: LimitHits } = { hits: { oomKills: 3, pidsRefusals: 0 } };
    let [nowMs, due]: [number, (() => void) | null] = [0, null];
    const watch = new LimitWatch({
      ...world,
      monotonicMs: () => nowMs,
      timer: (_, task) => {
        due = task;
        return { cancel: () => (due = null) };
      },
    });
    const second = () => {
      nowMs += 1_000;
      const task = due;
      due = null;
      task?.();
    };
    const told: string[] = [];
    watch.watch(groupOf(counts), (limit) => told.push(limit));
    second();
    expect(told).toEqual([]);
    counts.hits = { oomKills: 4, pidsRefusals: 900 };
    watch.look("group");
    watch.look("group");
    expect(told.splice(0)).toEqual(["memory", "pids"]);
    // Within the second: the report waits, and is not forgotten.
    counts.hits = { oomKills: 4, pidsRefusals: 1_800 };
    watch.look("group");
    expect(told).toEqual([]);
    second();
    expect(told.splice(0)).toEqual(["pids"]);
    watch.note("group", "disk", "full");
    watch.note("group", "disk", "full");
    expect(told.splice(0)).toEqual(["disk"]);
    counts.hits = { oomKills: null, pidsRefusals: null };
    second();
    expect([told, due]).toEqual([[], null]);
  });
});

function groupOf(counts: { readonly hits: LimitHits }): LimitGroup {
  const usage = { memoryBytes: null, memoryMaxBytes: null, processCount: null, processMax: null, cpuMs: null };
  return {
    name: "group",
    startPrefix: [],
    commandPrefix: [],
    isCounted: true,
    processes: () => [],
    events: () => ({ ...counts.hits, cpuThrottles: null }),
    hits: () => counts.hits,
    usage: () => usage,
    killExcept: () => [],
    release: async () => {},
  };
}
