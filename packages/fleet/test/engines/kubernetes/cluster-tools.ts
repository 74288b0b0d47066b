/** Runs the backend suite on the cluster of `tests/cluster`, several cases at a time. Without a cluster every case is skipped. */

import { expect, it, type TestContext } from "vitest";
import type { BackendSuiteOptions } from "../../../src/testing/backend-suite.ts";
import { ConcurrencyLimit } from "../../../src/world/concurrency-limit.ts";
import { describeGroups } from "../../backends/suite-groups.ts";
import { CLUSTER } from "./kubernetes-harness.ts";

/** More at a time slow each other down on two processors. */
const AT_ONCE = 3;

/** `missing`: why the cluster cannot run these cases. */
export function clusterTools(groups?: readonly string[], missing: string | null = null): BackendSuiteOptions["tools"] {
  const turns = new ConcurrencyLimit(AT_ONCE);
  const never = new AbortController().signal;
  return {
    expect,
    it: (name, run) => onCluster(name, missing, () => turns.run(never, async () => run())),
    describe: describeGroups(groups),
  };
}

/** A test that needs the cluster. */
export function onCluster(name: string, missing: string | null, run: () => Promise<void>, hangMs?: number): void {
  const test = async (context: TestContext) => {
    if (missing !== null) context.skip(missing);
    if (CLUSTER === null) context.skip("no cluster is up: tests/cluster/README.md");
    await run();
  };
  it.concurrent(name, test, hangMs);
}
