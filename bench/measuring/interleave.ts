/**
 * Measures several sides in one run: many short rounds, every side once per round, in a new random order each time.
 *
 * A machine that is slow for a second is slow for every side of the rounds in that second, so the ratio within a round
 * is meaningful where two times taken minutes apart are not. So the result is the median of the rounds' ratios, never a
 * comparison of two bare times.
 */

import { collectYoung } from "./garbage.ts";

export interface Subject {
  readonly name: string;
  /** Runs the operation `count` times, one after another. A synchronous side returns nothing to wait for. */
  run(count: number): Promise<void> | void;
  /** Prepares the next timing, outside of it. */
  prepare?(): Promise<void>;
  /** Cleans up after a timing, outside of it. */
  settle?(): Promise<void>;
}

export interface Plan {
  readonly rounds: number;
  /** Operations per timing. More than one where a single operation is too short for the clock. */
  readonly batch: number;
  readonly timingsPerRound: number;
  /** Operations per side before the first round: until the code is compiled and the tables have their final size. */
  readonly warmUp: number;
}

export interface Timings {
  readonly name: string;
  /** Nanoseconds per operation, one for each timing. */
  readonly samples: readonly number[];
  /** Nanoseconds per operation, the mean of each round. */
  readonly rounds: readonly number[];
}

export async function interleave(subjects: readonly Subject[], plan: Plan): Promise<readonly Timings[]> {
  const sides = subjects.map((subject) => ({ subject, samples: [] as number[], rounds: [] as number[] }));
  await warmUp(subjects, plan);
  for (let round = 0; round < plan.rounds; round += 1) {
    for (const { subject, samples, rounds } of shuffled(sides)) {
      collectYoung();
      let sum = 0;
      for (let timing = 0; timing < plan.timingsPerRound; timing += 1) {
        const nanoseconds = (await time(subject, plan.batch)) / plan.batch;
        samples.push(nanoseconds);
        sum += nanoseconds;
      }
      rounds.push(sum / plan.timingsPerRound);
    }
  }
  return sides.map(({ subject, samples, rounds }) => ({ name: subject.name, samples, rounds }));
}

/** The ratio of two sides in each round. */
export function ratios(ours: Timings, baseline: Timings): readonly number[] {
  return ours.rounds.map((time, round) => time / (baseline.rounds[round] ?? Number.NaN));
}

/** In turns and in batches of the later size, so that no side is compiled as if it were alone. */
async function warmUp(subjects: readonly Subject[], { batch, warmUp: operations }: Plan): Promise<void> {
  for (let done = 0; done < operations; done += batch) {
    for (const subject of subjects) await time(subject, batch);
  }
}

async function time(subject: Subject, batch: number): Promise<number> {
  if (subject.prepare !== undefined) await subject.prepare();
  const startedAt = process.hrtime.bigint();
  const running = subject.run(batch);
  if (running !== undefined) await running;
  const nanoseconds = Number(process.hrtime.bigint() - startedAt);
  if (subject.settle !== undefined) await subject.settle();
  return nanoseconds;
}

/** Fisher and Yates. In a fixed order the same side would get the other's warm caches every time. */
function shuffled<T>(items: readonly T[]): readonly T[] {
  const order = [...items];
  for (let last = order.length - 1; last > 0; last -= 1) {
    const pick = Math.floor(Math.random() * (last + 1));
    const [a, b] = [order[last], order[pick]];
    if (a !== undefined && b !== undefined) [order[last], order[pick]] = [b, a];
  }
  return order;
}
