/**
 * The facts of one plausible case per error code. The type asks for every code, so a new one does not compile without
 * its sample. `docs/errors.md` shows these, and the tests of the registry run over them.
 */

import { type ErrorCode, type ErrorDetails, THREAD_ID_PATTERN, USER_ID_PATTERN } from "@sandlot/contract";

const PATH = "/mnt/user-data/workspace/report.md";

export const ERROR_SAMPLES: { readonly [Code in ErrorCode]: ErrorDetails[Code] } = {
  invalid_thread_id: { value: '"a/b"', pattern: THREAD_ID_PATTERN.source },
  invalid_user_id: { value: '"a/b"', pattern: USER_ID_PATTERN.source },
  invalid_request: { field: "timeoutMs", problem: "must not be negative" },
  config_invalid: { path: "idleTimeout", problem: "this key does not exist", suggestion: "idleTimeoutMs" },
  blueprint_unknown: { blueprint: "pyhton", known: ["default", "python"] },
  blueprint_mismatch: { thread: "t1", wanted: "python", actual: "default" },
  capability_missing: { backend: "memory", capability: "image", neededBy: "blueprint python" },
  dependency_missing: { package: "just-bash", neededBy: "The memory backend", install: "npm install just-bash" },
  capacity_exhausted: {
    scope: "fleet",
    max: 8,
    leased: 5,
    parked: 0,
    blank: 0,
    creating: 2,
    stopping: 1,
    queued: 3,
    retryAfterMs: 2_000,
  },
  acquire_timeout: { stage: "waiting for room", timeoutMs: 60_000 },
  create_failed: { backend: "memory", problem: "the engine refused" },
  sandbox_lost: { sandboxId: "3f9c2a71", generation: 42, reason: "crashed" },
  sandbox_in_use: { sandboxId: "3f9c2a71", holders: ["instance-a"] },
  sandbox_unreachable: { sandboxId: "3f9c2a71", problem: "the connection was refused", retryAfterMs: 1_000 },
  sandbox_not_found: { id: "3f9c2a71" },
  sandbox_expired: { sandboxId: "3f9c2a71", maxLifetimeMs: 86_400_000, retryAfterMs: 1_000 },
  stale_generation: { sandboxId: "3f9c2a71", generation: 41, current: 42 },
  lease_released: { leaseId: "b81d04e6" },
  lease_not_found: { leaseId: "b81d04e6" },
  workspace_conflict: { user: "default", thread: "t1", sandboxId: "3f9c2a71" },
  store_corrupt: { path: "/home/me/.local/state/sandlot/fleet.db", problem: "the file is not a database" },
  store_unavailable: { operation: "reserve", problem: "the database is locked", retryAfterMs: 500 },
  store_recovering: { epoch: "9d2b77c0", retryAfterMs: 15_000 },
  fleet_closed: { operation: "acquire" },
  exec_conflict: { execId: "build-1" },
  exec_not_found: { execId: "build-1" },
  wait_timeout: { waitedFor: "port 8080", timeoutMs: 30_000 },
  unauthorized: { problem: "it carries no token" },
  file_not_found: { path: PATH },
  file_exists: { path: PATH },
  file_too_large: { path: PATH, sizeBytes: 200_000_000, maxBytes: 104_857_600 },
  not_a_directory: { path: PATH },
  is_a_directory: { path: "/mnt/user-data/workspace" },
  directory_not_empty: { path: "/mnt/user-data/workspace" },
  read_only_path: { path: "/mnt/skills/notes.md" },
  permission_denied: { path: "/etc/shadow" },
  disk_limit_exceeded: { path: PATH },
  invalid_path: { path: "report.md", problem: "it is not absolute" },
  invalid_pattern: { pattern: "(", problem: "a group is not closed" },
  internal: { problem: "a record has no actor" },
};
