/** How each limit is enforced: text for `sandlot doctor`, facts for the capability list. */

import { LOOK_EVERY_MS } from "./disk/watcher.ts";
import { CONTROLLERS, type Controller } from "./hierarchy.ts";
import type { Enforcement, LimitsDescription } from "./limits.ts";
import type { QuotaSight } from "./quota/trial.ts";
import { countsProcessesPerSandbox, hasPrlimit, RESERVED_BYTES } from "./rlimits.ts";

/** `version` of the control groups with `controllers`; `null` for none. `missing` says why one is absent. */
export function describeLimits(
  version: 1 | 2 | null,
  controllers: ReadonlySet<Controller>,
  missing: string | null,
): LimitsDescription {
  const of = (controller: Controller, otherwise: Enforcement): Enforcement =>
    version !== null && controllers.has(controller) ? byGroup(version, controller) : otherwise;
  return {
    memory: of("memory", memoryByRlimit()),
    cpu: of("cpu", none("Processor time is not limited: that takes control groups.")),
    pids: of("pids", pidsByRlimit()),
    missing: CONTROLLERS.every((controller) => controllers.has(controller)) ? null : missing,
  };
}

/** How the disk budget of workspaces is enforced. */
export function describeDisk(quotas: QuotaSight): Enforcement {
  return quotas.possible ? byQuota(quotas.type) : byWatcher(quotas.reason);
}

function byQuota(type: string): Enforcement {
  return {
    by: "project-quota",
    scope: "sandbox",
    measured: true,
    says:
      `The kernel refuses what a workspace has no room for, to the block and to the file (project quotas of ${type}). ` +
      "A workspace that cannot be given one, because it has links from before, is watched.",
  };
}

function byWatcher(reason: string): Enforcement {
  return {
    by: "watcher",
    scope: "sandbox",
    measured: true,
    says:
      "API writes beyond the budget are refused; commands that write past it are stopped within about " +
      `${2 * LOOK_EVERY_MS} ms, so what they wrote until then is past it. No single file outgrows it. ` +
      `There are no project quotas: ${reason}.`,
  };
}

const WHAT: Readonly<Record<Controller, string>> = {
  memory: "memory, with what lies in /tmp",
  cpu: "processor time",
  pids: "the number of processes",
};

function byGroup(version: 1 | 2, controller: Controller): Enforcement {
  return {
    by: `cgroup-v${version}`,
    scope: "sandbox",
    measured: true,
    says: `The kernel limits ${WHAT[controller]} of the sandbox as a whole (control groups, version ${version}).`,
  };
}

function memoryByRlimit(): Enforcement {
  if (!hasPrlimit()) return none("Memory is not limited: there are no control groups and no prlimit.");
  const reserve = `${RESERVED_BYTES / 1024 / 1024} MB more`;
  return byRlimit(`Each process of a command is limited in memory to ${reserve} (RLIMIT_DATA), but not their sum.`);
}

function pidsByRlimit(): Enforcement {
  if (!hasPrlimit()) return none("The number of processes is not limited: there are no control groups and no prlimit.");
  if (!countsProcessesPerSandbox())
    return none("The number of processes is not limited: before Linux 5.14 others of the same account would count.");
  return {
    ...byRlimit("Commands cannot start more processes than this in a sandbox (RLIMIT_NPROC)."),
    scope: "sandbox",
  };
}

function byRlimit(says: string): Enforcement {
  return { by: "rlimit", scope: "process", measured: true, says };
}

function none(says: string): Enforcement {
  return { by: "none", scope: "none", measured: true, says };
}
