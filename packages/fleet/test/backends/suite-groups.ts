/**
 * The groups of the backend suite to run. All of them run on memory, on local sandboxes of root's fleet and on Docker
 * with sockets. A variant that differs only in the account, the engine, the runtime or the transport runs the groups
 * that this can change; `SANDLOT_TEST_WHOLE_SUITE=1` runs all of them there, too.
 */

import { describe } from "vitest";
import type { BackendSuiteOptions } from "../../src/testing/backend-suite.ts";

/** Whether every group runs on variants too. */
export const isWholeSuite: boolean = process.env.SANDLOT_TEST_WHOLE_SUITE === "1";

/** For `describeBackend`. Without `groups` all of them run. */
export function describeGroups(groups?: readonly string[]): BackendSuiteOptions["tools"]["describe"] {
  return (name, body) => {
    const isWanted = isWholeSuite || groups === undefined || name.startsWith("backend ") || groups.includes(name);
    if (isWanted) describe(name, body);
  };
}

/** The deviations of the selected groups: one that names no case would fail. */
export function deviationsIn<Deviation>(
  groups: readonly string[],
  deviations: Readonly<Record<string, Deviation>>,
): Readonly<Record<string, Deviation>> {
  const isRun = (name: string) => isWholeSuite || groups.some((group) => name.startsWith(`${group}: `));
  return Object.fromEntries(Object.entries(deviations).filter(([name]) => isRun(name)));
}
