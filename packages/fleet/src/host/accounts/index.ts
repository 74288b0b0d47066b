/** Accounts of the host for sandboxes, and id-mapped mounts for their files. */

export { HostMounts } from "./host-mounts.ts";
export { IdMapping, type MappedScope, type OwnedPath } from "./id-mapping.ts";
export { ID_REGISTRY } from "./id-range.ts";
export type { MountStep } from "./mount-namespaces.ts";
export { type Account, egressAccountOf, SandboxAccounts, sandboxAccounts, sharingProblem } from "./sandbox-accounts.ts";
export { systemCalls } from "./system-calls.ts";
