/**
 * Which groups of the backend suite are run. All of them run on memory, on local sandboxes of root's fleet and on Docker with
 * sockets. A variant, where only the account, the engine, the runtime or the transport is another, runs the groups that this can
 * change; `SANDLOT_TEST_WHOLE_SUITE=1` runs all of them there, too.
 */

import { describe } from "vitest";
import type { BackendSuiteOptions } from "../../src/testing/backend-suite.ts";

/** Whether every group is run wherever some are. */
export const isWholeSuite: boolean = process.env.SANDLOT_TEST_WHOLE_SUITE === "1";

/** For `describeBackend`. Without `groups` all of them are run. */
export function describeGroups(groups?: readonly string[]): BackendSuiteOptions["tools"]["describe"] {
  return (name, body) => {
    const isWanted = isWholeSuite || groups === undefined || name.startsWith("backend ") || groups.includes(name);
    if (isWanted) describe(name, body);
  };
}

/** The deviations of the groups that are run: one that names no case would fail. */
export function deviationsIn<Deviation>(
  groups: readonly string[],
  deviations: Readonly<Record<string, Deviation>>,
): Readonly<Record<string, Deviation>> {
  const isRun = (name: string) => isWholeSuite || groups.some((group) => name.startsWith(`${group}: `));
  return Object.fromEntries(Object.entries(deviations).filter(([name]) => isRun(name)));
}
