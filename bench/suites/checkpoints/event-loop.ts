/**
 * How long the event loop of a fleet stands still while its checkpoints are taken, restored, compared and exported, beside
 * an idle wait. The longest pause of each round counts.
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
const CONTROL_MS = 500;
const CHANGED = 300;

interface Work {
  readonly name: string;
  readonly prepare?: () => Promise<void>;
  readonly run: () => Promise<unknown>;
}

export async function* eventLoop(stage: Stage, options: SuiteOptions): AsyncGenerator<Result> {
  const { rounds } = planOf(options);
  const control = { name: "an idle wait", run: () => new Promise((resolve) => setTimeout(resolve, CONTROL_MS)) };
  const idle: number[] = [];
  for (const work of works(stage)) {
    const samples: number[] = [];
    for (let round = 0; round < Math.min(rounds, 5); round++) {
      await work.prepare?.();
      samples.push(await longestPause(work.run));
      idle.push(await longestPause(control.run));
    }
    const sides: Pick<Timings, "name" | "samples">[] = [
      { name: work.name, samples },
      { name: control.name, samples: idle },
    ];
    const ratios = samples.map((pause) => pause / PAUSE_MAX_NS);
    const about = "the longest pause of the event loop, against 20 ms";
    const name = `event-loop-${work.name}`;
    yield resultOf({ name, limit: 1, about }, "ns", sides, ratios, median(samples) / PAUSE_MAX_NS);
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

async function longestPause(work: () => Promise<unknown>): Promise<number> {
  const delay = monitorEventLoopDelay({ resolution: 1 });
  delay.enable();
  try {
    await work();
  } finally {
    delay.disable();
  }
  return delay.max;
}
