/**
 * How the backend suite is run on an engine: several cases at a time, because each mostly waits for the engine, and every case has a
 * fleet and a home of its own.
 */

import { expect, it } from "vitest";
import type { BackendSuiteOptions } from "../../../src/testing/backend-suite.ts";
import { ConcurrencyLimit } from "../../../src/world/concurrency-limit.ts";
import { describeGroups } from "../suite-groups.ts";

export { isWholeSuite } from "../suite-groups.ts";

/** More at a time get in each other's way on two processors. */
const AT_ONCE = 3;

/** For `describeBackend`. Without `groups` all of them are run. */
export function suiteTools(groups?: readonly string[]): BackendSuiteOptions["tools"] {
  const turns = new ConcurrencyLimit(AT_ONCE);
  const never = new AbortController().signal;
  return {
    expect,
    it: (name, run) => it.concurrent(name, () => turns.run(never, async () => run())),
    describe: describeGroups(groups),
  };
}
