/** Faults of the machine: a full disk, and clocks that are wrong. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Fault } from "../fault.ts";
import { findFakeTime } from "../stage/fake-time.ts";
import type { Stage } from "../stage/stage.ts";

const FULL_MS = 10_000;
/** More than a session's lifetime. */
const WATCHED_MS = 20_000;
const HOME_BYTES = 512 * 1_048_576;
const FULL_WORKSPACES = "packages/fleet/test/host/workspaces/trouble.test.ts";
const CLOCKS = "packages/fleet/test/lifecycle/session/store-clock-sight.test.ts";

export const MACHINE_FAULTS: readonly Fault[] = [
  {
    kind: "disk full",
    how: "the home is a file system of 512 MB that another program fills for 10 s; commands that write fail meanwhile",
    detection: "the first call that fails; none where the lines of the callers fit the pages that their files have",
    test: "packages/fleet/test/store/sqlite-trouble.test.ts",
    testsOf: { postgres: FULL_WORKSPACES, redis: FULL_WORKSPACES },
    prepare: async (stage) => stage.useSmallHome(HOME_BYTES),
    async strike({ smallHome }) {
      smallHome?.fill();
      const at = performance.now();
      await sleep(FULL_MS);
      smallHome?.free();
      return { at };
    },
  },
  clock("clock an hour ahead", "+3600", "the wall clock of both gateways jumps an hour ahead (libfaketime)"),
  clock("clock an hour behind", "-3600", "the wall clock of both gateways jumps an hour back (libfaketime)"),
  {
    kind: "clock drifts",
    how: "the wall clock of both gateways runs 5 % too fast for 20 s (libfaketime)",
    detection: "not at all: an instance doubts itself from 1 s between two beats on, and this is a quarter of it",
    test: "packages/fleet/test/lifecycle/session/burial.test.ts",
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
    testsOf: { postgres: CLOCKS, redis: CLOCKS },
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
