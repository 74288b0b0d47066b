/**
 * Limits of sandboxes on this host: memory, processors, processes, disk.
 *
 *   const limits = openLimits({ fleetId, world });
 *   const group = limits.create(`${sandboxId}-${generation}`, { memoryBytes, cpuCount, pidsMax, fileMaxBytes });
 *   spawn([...group.startPrefix, "setpriv", …, "bwrap", …])   entered before bwrap's first step; needs the fleet's rights
 *   daemonConfig.commandPrefix = group.commandPrefix           empty where control groups enforce the limits
 *   const before = group.events(); … limitHit(before, group.events())   "memory" | "pids" | null
 *   await group.release()                                      after everything in it has ended
 *   limits.findGroups().map(limits.open)                       left-overs of this fleet: killExcept([]), then release()
 *   limits.close()                                             when the fleet closes; groups stay
 *   limits.description                                         for `sandlot doctor` and the capability list
 *
 *   const watcher = new DiskWatcher({ world });                one for all sandboxes; `close` it with the backend
 *   const guard = new DiskGuard(watcher, { group, place, diskBytes, filesMax, spare, onProblem })
 *                                                              per sandbox that this process knows: stops writers that
 *                                                              exceed the budget. `close` it on destroy
 *   const quotas = new ProjectQuotas({ root, world, onProblem })  one for all sandboxes, where the file system has quotas:
 *   await quotas.hold(thread, userData, { diskBytes, filesMax })  before anything runs in it; `release(thread)` on purge
 *   quotas.holds(thread, userData) ? new QuotaGuard(…) : new DiskGuard(…)
 *   const watch = new LimitWatch(world); watch.watch(group, tell)
 *                                                              reports every hit by any process of the sandbox
 *   limitedSandbox(sandbox, group, guard | null)               what `attach` returns: API writes check the budget first
 *                                                              (`disk_limit_exceeded`), and results of commands say which
 *                                                              limit ended them
 *   memoryFileSystemBytes(wanted, memoryBytes)                 sizes for /tmp and the like that leave room for programs
 */

export { DiskBudget } from "./disk/budget.ts";
export { canFreeze, freeze } from "./disk/freezer.ts";
export { DiskGuard } from "./disk/guard.ts";
export type { DiskKeeper } from "./disk/keeper.ts";
export { DiskWatcher } from "./disk/watcher.ts";
export { cpuShares } from "./group-files.ts";
export { LimitWatch } from "./limit-watch.ts";
export { limitedSandbox } from "./limited-sandbox.ts";
export { type Enforcement, type LimitGroup, type Limits, limitHit, memoryFileSystemBytes } from "./limits.ts";
export { openLimits } from "./open-limits.ts";
export { ProjectQuotas } from "./quota/project-quotas.ts";
export { QuotaGuard } from "./quota/quota-guard.ts";
export { COMMAND_OOM_SCORE_ADJUSTMENT } from "./start-prefix.ts";
