/**
 * How the backend suite is run on an engine: several cases at a time, because each mostly waits for the engine, and every case has a
 * fleet and a home of its own. Where the daemon is the same and only the engine, the runtime or the transport is another, the groups
 * that tell of those are enough; `SANDLOT_TEST_WHOLE_SUITE=1` runs all of them there, too.
 */

import { describe, expect, it } from "vitest";
import { Turns } from "../../../src/backends/local/turns.ts";
import type { BackendSuiteOptions } from "../../../src/testing/backend-suite.ts";

/** More at a time get in each other's way on two processors. */
const AT_ONCE = 3;

/** Whether every group is run wherever some are. */
export const isWholeSuite: boolean = process.env.SANDLOT_TEST_WHOLE_SUITE === "1";

/** For `describeBackend`. Without `groups` all of them are run. */
export function suiteTools(groups?: readonly string[]): BackendSuiteOptions["tools"] {
  const turns = new Turns(AT_ONCE);
  const never = new AbortController().signal;
  return {
    expect,
    it: (name, run) => it.concurrent(name, { timeout: 60_000 }, () => turns.run(never, async () => run())),
    describe: (name, body) => {
      const isWanted = isWholeSuite || groups === undefined || name.startsWith("backend ") || groups.includes(name);
      if (isWanted) describe(name, body);
    },
  };
}
