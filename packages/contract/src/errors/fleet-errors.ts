/** Errors of the fleet: acquiring, making and losing sandboxes, and the store. */

import { isoTime } from "../times.ts";
import type { ErrorSpecs } from "./spec.ts";

/** Why a lease's sandbox is gone. */
export type LossReason =
  | "crashed"
  | "destroyed"
  | "expired"
  /** Its workspace is changed to a checkpoint; the next use gets the next generation. */
  | "restored"
  | "session-lost"
  | "superseded";

/** Why a sandbox ended, as far as its engine knows. `exited`: its own processes ended. */
export type DeathCause =
  | "exited"
  | "out-of-memory"
  | "disk-limit"
  | "node-pressure"
  | "preempted"
  | "drained"
  | "node-shutdown"
  | "node-lost"
  | "deadline"
  | "deleted";

/** The counts of a fleet's sandboxes, as far as the store knows. */
export interface CapacityCounts {
  leased: number;
  parked: number;
  blank: number;
  creating: number;
  stopping: number;
  queued: number;
}

/** One problem of a configuration; `line` and `column` if it came from a file. */
export interface ConfigProblem {
  readonly path: string;
  /** A text that follows the path, without a full stop. */
  readonly problem: string;
  readonly suggestion?: string;
  readonly line?: number;
  readonly column?: number;
}

/** The facts of each code. */
export interface FleetErrorDetails {
  invalid_thread_id: { value: string; pattern: string };
  invalid_user_id: { value: string; pattern: string };
  /** The first problem, and all of them if there are several. */
  config_invalid: { path: string; problem: string; suggestion?: string; problems?: readonly ConfigProblem[] };
  config_unreadable: { file: string; problem: string };
  blueprint_unknown: { blueprint: string; known: readonly string[] };
  blueprint_mismatch: { thread: string; wanted: string; actual: string };
  capability_missing: { backend: string; capability: string; neededBy: string };
  dependency_missing: { package: string; neededBy: string; install: string };
  capacity_exhausted: CapacityCounts & {
    scope: "fleet" | "engine" | "user" | "queue";
    max: number;
    retryAfterMs: number;
  };
  acquire_timeout: { stage: string; timeoutMs: number };
  create_failed: { backend: string; problem: string };
  /** `environment` is `name@hash`. `problem` has the end of the log. */
  environment_failed: { environment: string; problem: string };
  environment_in_use: { environment: string; count: number };
  isolation_unavailable: { backend: string; problem: string; fix: string };
  engine_unavailable: { engine: string; problem: string; tried: readonly string[]; retryAfterMs: number };
  /** No node had room until the deadline. `reason` is the scheduler's. */
  cluster_full: { reason: string; pendingMs: number; retryAfterMs: number };
  quota_exceeded: { quota: string; problem: string };
  /** `fix` is the missing rule, ready to paste. */
  engine_forbidden: { verb: string; resource: string; namespace: string; fix: string };
  /** `other` names the store that owns the fleet id on this engine. */
  fleet_conflict: { fleetId: string; other: string };
  image_unavailable: { image: string; problem: string };
  mount_refused: { hostPath: string; sandboxPath: string; problem: string };
  /** `cause` where the engine has reported one. */
  sandbox_lost: { sandboxId: string; generation: number; reason: LossReason; cause?: DeathCause };
  sandbox_in_use: { sandboxId: string; holders: readonly string[] };
  sandbox_unreachable: { sandboxId: string; problem: string; retryAfterMs: number };
  sandbox_not_found: { id: string };
  /** `gateways` are the addresses at which the thread can be reached. The thread is empty for a blank. */
  thread_elsewhere: { thread: string; engine: string; gateways: readonly string[] };
  engine_unreachable: { engine: string; retryAfterMs: number };
  sandbox_expired: { sandboxId: string; maxLifetimeMs: number; retryAfterMs: number };
  stale_generation: { sandboxId: string; generation: number; current: number | null };
  /** `because` if the lease is not the one its caller knows. */
  lease_released: { leaseId: string; because?: string };
  lease_not_found: { leaseId: string };
  workspace_conflict: { user: string; thread: string; sandboxId: string };
  store_corrupt: { path: string; problem: string };
  store_unavailable: { operation: string; problem: string; retryAfterMs: number };
  store_recovering: { epoch: string; retryAfterMs: number };
  /** `moved`: an export has closed it. `importing`: an import has begun and not ended. */
  store_moved: { state: "moved" | "importing"; since: number };
  store_in_use: { store: string; instances: readonly string[] };
  store_not_empty: { store: string; problem: string };
  export_invalid: { file: string; problem: string };
  fleet_closed: { operation: string };
}

export const FLEET_ERRORS: ErrorSpecs<FleetErrorDetails> = {
  invalid_thread_id: {
    status: 422,
    retryable: false,
    message: ({ value, pattern }) => `The thread id ${value} does not match ${pattern}.`,
    remedy:
      "Use 1 to 64 letters, digits, underscores or hyphens. Map other ids with `threadFrom` of `@sandlot/client`.",
  },
  invalid_user_id: {
    status: 422,
    retryable: false,
    message: ({ value, pattern }) => `The user id ${value} does not match ${pattern}.`,
    remedy: "Use 1 to 128 letters, digits, underscores or hyphens. Map other ids with `userFrom` of `@sandlot/client`.",
  },
  config_invalid: {
    status: 500,
    retryable: false,
    message: ({ path, problem, suggestion }) =>
      `Configuration${path === "" ? "" : ` at ${path}`}: ${problem}.${suggestion === undefined ? "" : ` Did you mean ${suggestion}?`}`,
    remedy: "Correct the named key. `sandlot config schema` prints every key with its meaning.",
  },
  config_unreadable: {
    status: 500,
    retryable: false,
    message: ({ file, problem }) => `The configuration file ${file} cannot be used: ${problem}.`,
    remedy: "Check the path and who may read it; `sandlot config init FILE` writes a new one.",
  },
  blueprint_unknown: {
    status: 422,
    retryable: false,
    message: ({ blueprint, known }) => `There is no blueprint ${blueprint}; configured are ${known.join(", ")}.`,
    remedy: "Ask for a configured blueprint, or add this one to `blueprints` in the configuration.",
  },
  blueprint_mismatch: {
    status: 409,
    retryable: false,
    message: ({ thread, wanted, actual }) =>
      actual === wanted
        ? `Thread ${thread} lives on an earlier version of blueprint ${actual}, whose configuration has changed since.`
        : `Thread ${thread} lives on blueprint ${actual}; it was asked for on ${wanted}.`,
    remedy: "Ask without a blueprint, or destroy the thread's sandbox first; its workspace stays.",
  },
  capability_missing: {
    status: 501,
    retryable: false,
    message: ({ backend, capability, neededBy }) =>
      `The ${backend} backend cannot do ${capability}, which ${neededBy} needs.`,
    remedy: "Use a backend that declares the capability, or do without what needs it.",
  },
  dependency_missing: {
    status: 501,
    retryable: false,
    message: ({ package: name, neededBy, install }) =>
      `${neededBy} needs the package ${name}, which is not installed: ${install}.`,
    remedy:
      "Run the command that the error names where sandlot is installed, with --global if it was; the package is an optional peer.",
  },
  capacity_exhausted: {
    status: 429,
    retryable: true,
    message: ({ scope, max, leased, parked, blank, creating, stopping, queued }) =>
      `No room (${scope} limit ${max}): ${leased} leased, ${parked} parked, ${blank} blank, ${creating} creating, ` +
      `${stopping} stopping, ${queued} waiting.`,
    remedy: "Wait for `retryAfterMs`, release leases that are no longer used, or raise `limits`.",
  },
  acquire_timeout: {
    status: 504,
    retryable: true,
    message: ({ stage, timeoutMs }) => `No sandbox within ${timeoutMs} ms; it was still at: ${stage}.`,
    remedy: "Try again, or allow more time with `timeoutMs` or `acquireTimeoutMs`.",
  },
  create_failed: {
    status: 503,
    retryable: true,
    message: ({ backend, problem }) => `The ${backend} backend could not make a sandbox: ${problem}.`,
    remedy: "Look at the engine; what was half-made has been removed, so trying again is safe.",
  },
  environment_failed: {
    status: 422,
    retryable: false,
    message: ({ environment, problem }) => `The environment ${environment} could not be built: ${problem}.`,
    remedy:
      "Read its log with `sandlot env inspect`, correct the blueprint's setup, or build it again with `sandlot env build`.",
  },
  environment_in_use: {
    status: 409,
    retryable: false,
    message: ({ environment, count }) => `The environment ${environment} is mounted in ${count} sandboxes.`,
    remedy: "End these sandboxes first; `sandlot env ls` counts them.",
  },
  isolation_unavailable: {
    status: 501,
    retryable: false,
    message: ({ backend, problem }) => `The ${backend} backend cannot isolate sandboxes on this machine: ${problem}.`,
    remedy: "Do what `fix` in the details says; `sandlot doctor` shows everything that is missing.",
  },
  engine_unavailable: {
    status: 503,
    retryable: true,
    message: ({ engine, problem, tried }) =>
      `The ${engine} engine does not answer: ${problem} (tried ${tried.join(", ")}).`,
    remedy: "Start the engine, or name its address in the configuration. Nothing was destroyed.",
  },
  cluster_full: {
    status: 503,
    retryable: true,
    message: ({ reason, pendingMs }) => `No node had room for the sandbox within ${pendingMs} ms: ${reason}.`,
    remedy: "Wait for `retryAfterMs`, add nodes, or lower the limits of the blueprint.",
  },
  quota_exceeded: {
    status: 429,
    retryable: true,
    message: ({ quota, problem }) => `The quota ${quota} of the engine leaves no room for the sandbox: ${problem}.`,
    remedy: "End sandboxes that are no longer used, raise the quota, or lower the limits of the blueprint.",
  },
  engine_forbidden: {
    status: 500,
    retryable: false,
    message: ({ verb, resource, namespace }) =>
      `The engine does not allow this process to ${verb} ${resource} in the namespace ${namespace}.`,
    remedy: "Grant the rule in `fix`. `sandlot doctor` lists every missing permission.",
  },
  fleet_conflict: {
    status: 500,
    retryable: false,
    message: ({ fleetId, other }) => `The fleet id ${fleetId} belongs to another store on this engine (${other}).`,
    remedy:
      "Use the store that owns the fleet id, or another `fleetId`. Two stores of one fleet would end each other's sandboxes.",
  },
  image_unavailable: {
    status: 422,
    retryable: false,
    message: ({ image, problem }) => `The image ${image} cannot be used: ${problem}.`,
    remedy: "Correct the image's name, make it available to the engine, or use an image that has what is missing.",
  },
  mount_refused: {
    status: 422,
    retryable: false,
    message: ({ hostPath, sandboxPath, problem }) => `${hostPath} cannot be mounted at ${sandboxPath}: ${problem}.`,
    remedy: "Correct the mount in the blueprint; reserved paths cannot be shadowed and host paths must exist.",
  },
  sandbox_lost: {
    status: 410,
    retryable: true,
    message: ({ sandboxId, generation, reason, cause }) =>
      `Sandbox ${sandboxId} (generation ${generation}) is gone: ${reason}${cause === undefined ? "" : ` (${cause})`}.`,
    remedy: "Acquire again: the workspace is kept, processes and temporary files are not.",
  },
  sandbox_in_use: {
    status: 409,
    retryable: true,
    message: ({ sandboxId, holders }) => `Sandbox ${sandboxId} is in use by ${holders.join(", ")}.`,
    remedy: "Wait until the leases end, or destroy with `force` to end them.",
  },
  thread_elsewhere: {
    status: 409,
    retryable: false,
    message: ({ thread, engine, gateways }) =>
      `${thread === "" ? "The sandbox" : `Thread ${thread}`} is on engine ${engine}, which this process does not reach; ` +
      `${gateways.length === 0 ? "the processes that do have no address" : `ask ${gateways.join(" or ")}`}.`,
    remedy: "Send the request to one of `gateways`. A thread stays on its engine until it is purged.",
  },
  engine_unreachable: {
    status: 503,
    retryable: true,
    message: ({ engine }) => `No process reaches engine ${engine} at present; what it has is kept.`,
    remedy:
      "Try again when a process on the host of that engine runs. Nothing was destroyed, and nothing was made elsewhere.",
  },
  sandbox_unreachable: {
    status: 503,
    retryable: true,
    // Without a sandbox, the gateway or a port does not answer; `problem` says which.
    message: ({ sandboxId, problem }) =>
      sandboxId === ""
        ? `${problem.charAt(0).toUpperCase()}${problem.slice(1)}.`
        : `Sandbox ${sandboxId} does not answer: ${problem}.`,
    remedy: "Try again: not reachable is not dead, so nothing was destroyed.",
  },
  sandbox_not_found: {
    status: 404,
    retryable: false,
    message: ({ id }) => `There is no sandbox ${id}.`,
    remedy: "List the fleet to see what exists; a sandbox that ended has a short tombstone in `explain`.",
  },
  sandbox_expired: {
    status: 503,
    retryable: true,
    message: ({ sandboxId, maxLifetimeMs }) =>
      `Sandbox ${sandboxId} is past its maximum lifetime of ${maxLifetimeMs} ms and takes no new leases.`,
    remedy: "Try again when its present leases have ended; the thread then gets a fresh sandbox.",
  },
  stale_generation: {
    status: 409,
    retryable: false,
    message: ({ sandboxId, generation, current }) =>
      `Generation ${generation} of sandbox ${sandboxId} is stale${current === null ? "" : `; current is ${current}`}.`,
    remedy: "Take the sandbox from the lease again (`lease.sandbox`), or acquire anew.",
  },
  lease_released: {
    status: 409,
    retryable: false,
    message: ({ leaseId, because }) =>
      because ?? `Lease ${leaseId} was released; its sandbox can no longer be used through it.`,
    remedy: "Acquire a lease of its own for each piece of work, and release it when that work is done.",
  },
  lease_not_found: {
    status: 404,
    retryable: false,
    message: ({ leaseId }) => `There is no lease ${leaseId}; it was released or has expired.`,
    remedy: "Acquire a new lease, and renew it well before its `ttlMs` runs out.",
  },
  workspace_conflict: {
    status: 409,
    retryable: false,
    message: ({ user, thread, sandboxId }) =>
      `The workspace of thread ${thread} of user ${user} exists twice: at home and in the slot of sandbox ${sandboxId}.`,
    remedy: "Nothing was touched. Compare the two directories, keep one, move the other away, and try again.",
  },
  store_corrupt: {
    status: 500,
    retryable: false,
    message: ({ path, problem }) => `The store at ${path} cannot be used: ${problem}.`,
    remedy:
      "Restore the file from a backup, or move it away on purpose together with its `.epoch` file to start empty.",
  },
  store_unavailable: {
    status: 503,
    retryable: true,
    message: ({ operation, problem }) => `The store did not answer ${operation}: ${problem}.`,
    remedy: "Try again; leases that are held keep working meanwhile. Look at the store if it persists.",
  },
  store_recovering: {
    status: 503,
    retryable: true,
    message: ({ epoch }) => `The store was lost and begins again (epoch ${epoch}); holders are re-registering.`,
    remedy: "Wait for `retryAfterMs`; recovery lasts one session lifetime.",
  },
  store_moved: {
    status: 409,
    retryable: false,
    message: ({ state, since }) =>
      state === "moved"
        ? `The store was exported at ${isoTime(since)} and serves no instance since.`
        : `An import into the store began at ${isoTime(since)} and has not ended.`,
    remedy:
      "After an export, use the new store, or go back to this one with `sandlot store resume`. After a broken import, run the same `sandlot store import` again, or remove the new store.",
  },
  store_in_use: {
    status: 409,
    retryable: false,
    message: ({ store, instances }) => `The store (${store}) is in use by ${instances.join(", ")}.`,
    remedy:
      "Stop these instances (SIGTERM; their sandboxes stay) and export again. `--while-running` writes a file without the sandboxes.",
  },
  store_not_empty: {
    status: 409,
    retryable: false,
    message: ({ store, problem }) => `Nothing was imported into the store (${store}): ${problem}.`,
    remedy: "Import into a new store that no instance has used.",
  },
  export_invalid: {
    status: 422,
    retryable: false,
    message: ({ file, problem }) => `Nothing was imported from ${file}: ${problem}.`,
    remedy: "Export again with `sandlot store export`, and copy the file whole.",
  },
  fleet_closed: {
    status: 503,
    retryable: false,
    message: ({ operation }) => `The fleet is closed; ${operation} is no longer possible.`,
    remedy: "Open a fleet again.",
  },
};
