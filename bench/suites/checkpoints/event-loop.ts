/**
 * How long the event loop of a fleet stands still while its checkpoints are taken, restored, compared and exported. The
 * longest pause of each round counts, against 20 ms, or against that of an idle wait of the same length where the machine
 * makes that one longer.
 */

import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import type { Timings } from "../../measuring/interleave.ts";
import { type Result, resultOf } from "../../measuring/result.ts";
import { median } from "../../measuring/statistics.ts";
import type { SuiteOptions } from "../suite.ts";
import { OWNER, planOf, type Stage } from "./stage.ts";

const PAUSE_MAX_NS = 20_000_000;
const CHANGED = 300;

interface Work {
  readonly name: string;
  readonly prepare?: () => Promise<void>;
  readonly run: () => Promise<unknown>;
}

export async function* eventLoop(stage: Stage, options: SuiteOptions): AsyncGenerator<Result> {
  const { rounds } = planOf(options);
  for (const work of works(stage)) {
    const samples: number[] = [];
    const idle: number[] = [];
    for (let round = 0; round < Math.min(rounds, 5); round++) {
      await work.prepare?.();
      const { pauseNs, tookMs } = await longestPause(work.run);
      samples.push(pauseNs);
      idle.push((await longestPause(() => new Promise((resolve) => setTimeout(resolve, tookMs)))).pauseNs);
    }
    const sides: Pick<Timings, "name" | "samples">[] = [
      { name: work.name, samples },
      { name: "an idle wait as long", samples: idle },
    ];
    const ratios = samples.map((pause, round) => pause / Math.max(PAUSE_MAX_NS, idle[round] ?? Number.NaN));
    const about = "the longest pause of the event loop, against 20 ms, or the idle one where that is longer";
    const name = `event-loop-${work.name}`;
    const whole = median(samples) / Math.max(PAUSE_MAX_NS, median(idle));
    yield resultOf({ name, limit: 1, about }, "ns", sides, ratios, whole);
  }
}

function works(stage: Stage): readonly Work[] {
  const { checkpoints, signal } = stage;
  const call = { signal };
  let full = "";
  const change = (count: number) => {
    for (let at = 0; at < count; at++)
      writeFileSync(join(stage.home, "workspace", `d${at % 100}`, `f${at}`), `${stage.content(2_000)}\n`);
  };
  return [
    {
      name: "take",
      prepare: async () => rmSync(join(stage.root, "fleet", "checkpoints"), { recursive: true, force: true }),
      run: async () => {
        full = await stage.take();
      },
    },
    {
      name: "diff",
      prepare: async () => change(CHANGED),
      run: () => checkpoints.diff(OWNER, { from: full, to: null }, { ...call, texts: true, maxChanges: 10_000 }),
    },
    {
      name: "restore",
      prepare: async () => {
        const work = join(stage.home, "workspace");
        rmSync(work, { recursive: true });
        mkdirSync(work);
      },
      run: () => stage.restore(full, "restore"),
    },
    {
      name: "export",
      run: async () => {
        for await (const _ of checkpoints.export(OWNER, full, call));
      },
    },
  ];
}

async function longestPause(work: () => Promise<unknown>): Promise<{ pauseNs: number; tookMs: number }> {
  const delay = monitorEventLoopDelay({ resolution: 1 });
  const startedAt = performance.now();
  delay.enable();
  try {
    await work();
  } finally {
    delay.disable();
  }
  return { pauseNs: delay.max, tookMs: performance.now() - startedAt };
}
