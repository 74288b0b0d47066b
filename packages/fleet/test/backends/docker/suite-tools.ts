/**
 * How the backend suite is run on an engine: several cases at a time, because each mostly waits for the engine, and every case has a
 * fleet and a home of its own. Where the daemon is the same and only the engine, the runtime or the transport is another, the groups
 * that tell of those are enough; `SANDLOT_TEST_WHOLE_SUITE=1` runs all of them there, too.
 */

import { describe, expect, it } from "vitest";
import type { BackendSuiteOptions } from "../../../src/testing/backend-suite.ts";

/** More at a time get in each other's way on two processors. */
const AT_ONCE = 3;

/** Whether every group is run wherever some are. */
export const isWholeSuite: boolean = process.env.SANDLOT_TEST_WHOLE_SUITE === "1";

/** For `describeBackend`. Without `groups` all of them are run. */
export function suiteTools(groups?: readonly string[]): BackendSuiteOptions["tools"] {
  const taken = turns(AT_ONCE);
  return {
    expect,
    it: (name, run) => it.concurrent(name, { timeout: 60_000 }, () => taken(async () => run())),
    describe: (name, body) => {
      const isWanted = isWholeSuite || groups === undefined || name.startsWith("backend ") || groups.includes(name);
      if (isWanted) describe(name, body);
    },
  };
}

/** At most so many at a time; the others wait. */
function turns(most: number): (work: () => Promise<void>) => Promise<void> {
  const waiting: (() => void)[] = [];
  let free = most;
  return async (work) => {
    if (free === 0) await new Promise<void>((resolve) => waiting.push(resolve));
    else free -= 1;
    try {
      await work();
    } finally {
      const next = waiting.shift();
      if (next === undefined) free += 1;
      else next();
    }
  };
}
