/**
 * Runs the backend suite on an engine: several cases at a time, because each mostly waits for the engine, and every
 * case has its own fleet and home.
 */

import { expect, it } from "vitest";
import type { BackendSuiteOptions } from "../../../src/testing/backend-suite.ts";
import { ConcurrencyLimit } from "../../../src/world/concurrency-limit.ts";
import { describeGroups } from "../suite-groups.ts";

export { isWholeSuite } from "../suite-groups.ts";

/** More at a time slow each other down on two processors. */
const AT_ONCE = 3;

/** For `describeBackend`. Without `groups` all of them run. */
export function suiteTools(groups?: readonly string[]): BackendSuiteOptions["tools"] {
  const turns = new ConcurrencyLimit(AT_ONCE);
  const never = new AbortController().signal;
  return {
    expect,
    it: (name, run) => it.concurrent(name, () => turns.run(never, async () => run())),
    describe: describeGroups(groups),
  };
}
