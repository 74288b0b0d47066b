/** Faults of the machine: a full disk, and clocks that are wrong. */

import { closeSync, openSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Fault } from "../fault.ts";
import { findFakeTime } from "../stage/fake-time.ts";
import type { Stage } from "../stage/stage.ts";

const FULL_MS = 10_000;
/** More than a session's lifetime. */
const WATCHED_MS = 20_000;
const HOME_MEGABYTES = 512;

export const MACHINE_FAULTS: readonly Fault[] = [
  {
    kind: "disk full",
    how: "the home is a file system of 512 MB that another program fills for 10 s; commands that write fail meanwhile",
    detection: "the first call that fails",
    test: "packages/fleet/test/store/sqlite-trouble.test.ts",
    prepare: async (stage) => stage.mountHome(HOME_MEGABYTES),
    async strike({ home }) {
      const path = join(home, "filler");
      fill(path);
      const at = performance.now();
      await sleep(FULL_MS);
      rmSync(path);
      return { at };
    },
  },
  clock("clock an hour ahead", "+3600", "the wall clock of both gateways jumps an hour ahead (libfaketime)"),
  clock("clock an hour behind", "-3600", "the wall clock of both gateways jumps an hour back (libfaketime)"),
  {
    kind: "clock drifts",
    how: "the wall clock of both gateways runs 5 % too fast for 20 s (libfaketime)",
    detection: "none is needed: a drift below 1 s between two beats changes nothing",
    test: "tests/simulation/simulation.test.ts",
    prepare: (stage) => withFakeTime(stage, "+0 x1.05"),
    async strike() {
      const at = performance.now();
      await sleep(WATCHED_MS);
      return { at };
    },
  },
];

function clock(kind: Fault["kind"], offset: string, how: string): Fault {
  return {
    kind,
    how,
    detection: "a gateway's event `instance-doubted`",
    test: "packages/fleet/test/store/store-clock.test.ts",
    prepare: (stage) => withFakeTime(stage, "+0"),
    async strike(stage) {
      const at = performance.now();
      writeFileSync(timeFile(stage), offset);
      await sleep(WATCHED_MS);
      return { at, shownBy: ["instance-doubted"] };
    },
  };
}

async function withFakeTime(stage: Stage, offset: string): Promise<void> {
  writeFileSync(timeFile(stage), offset);
  stage.setVariable("LD_PRELOAD", findFakeTime());
  stage.setVariable("FAKETIME_TIMESTAMP_FILE", timeFile(stage));
  stage.setVariable("FAKETIME_NO_CACHE", "1");
  stage.setVariable("FAKETIME_DONT_FAKE_MONOTONIC", "1");
  stage.setVariable("NO_FAKE_STAT", "1");
}

function timeFile({ home }: Stage): string {
  return join(home, "faketime");
}

function fill(path: string): void {
  const file = openSync(path, "w");
  const block = Buffer.alloc(1_048_576);
  try {
    for (let size = block.length; size >= 4_096; )
      try {
        writeSync(file, block, 0, size);
      } catch {
        size /= 2; // Full for blocks of this size.
      }
  } finally {
    closeSync(file);
  }
}
