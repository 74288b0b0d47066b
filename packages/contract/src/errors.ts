/**
 * The error registry.
 *
 * An error is a code with typed facts. Everything else follows from the code: the HTTP status, whether trying again
 * can help, the sentence a person reads, and what to do about it. `ErrorDetails` names the codes, `ERRORS` must have
 * an entry for each, and an entry without status, retryability, message or remedy does not compile.
 * `docs/errors.md` is generated from this file.
 */

/** The facts that each code carries. */
export interface ErrorDetails {
  invalid_thread_id: { value: string; pattern: string };
  invalid_user_id: { value: string; pattern: string };
  invalid_request: { field: string; problem: string };
  config_invalid: { path: string; problem: string; suggestion?: string };
  blueprint_unknown: { blueprint: string; known: readonly string[] };
  blueprint_mismatch: { thread: string; wanted: string; actual: string };
  capability_missing: { backend: string; capability: string; neededBy: string };
  dependency_missing: { package: string; neededBy: string; install: string };
  capacity_exhausted: CapacityCounts & { scope: "fleet" | "user" | "queue"; max: number; retryAfterMs: number };
  acquire_timeout: { stage: string; timeoutMs: number };
  create_failed: { backend: string; problem: string };
  isolation_unavailable: { backend: string; problem: string; fix: string };
  engine_unavailable: { engine: string; problem: string; tried: readonly string[]; retryAfterMs: number };
  image_unavailable: { image: string; problem: string };
  mount_refused: { hostPath: string; sandboxPath: string; problem: string };
  sandbox_lost: { sandboxId: string; generation: number; reason: LossReason };
  sandbox_in_use: { sandboxId: string; holders: readonly string[] };
  sandbox_unreachable: { sandboxId: string; problem: string; retryAfterMs: number };
  sandbox_not_found: { id: string };
  sandbox_expired: { sandboxId: string; maxLifetimeMs: number; retryAfterMs: number };
  stale_generation: { sandboxId: string; generation: number; current: number | null };
  lease_released: { leaseId: string };
  lease_not_found: { leaseId: string };
  workspace_conflict: { user: string; thread: string; sandboxId: string };
  store_corrupt: { path: string; problem: string };
  store_unavailable: { operation: string; problem: string; retryAfterMs: number };
  store_recovering: { epoch: string; retryAfterMs: number };
  fleet_closed: { operation: string };
  exec_conflict: { execId: string };
  exec_not_found: { execId: string };
  exec_limit: { running: number; max: number; retryAfterMs: number };
  stdin_closed: { execId: string };
  session_not_found: { sessionId: string };
  session_busy: { sessionId: string; retryAfterMs: number };
  terminal_not_found: { terminalId: string };
  wait_timeout: { waitedFor: string; timeoutMs: number };
  unauthorized: { problem: string };
  forbidden: { problem: string };
  rate_limited: { scope: string; max: number; retryAfterMs: number };
  route_not_found: { method: string; path: string };
  thread_exists: { thread: string };
  payload_too_large: { what: string; maxBytes: number };
  range_not_satisfiable: { path: string; sizeBytes: number };
  unsupported_media: { mediaType: string; problem: string };
  file_not_found: { path: string };
  file_exists: { path: string };
  file_changed: { path: string; expected: string | null; actual: string | null };
  file_too_large: { path: string; sizeBytes: number; maxBytes: number };
  not_a_directory: { path: string };
  is_a_directory: { path: string };
  directory_not_empty: { path: string };
  read_only_path: { path: string };
  permission_denied: { path: string };
  disk_limit_exceeded: { path: string };
  invalid_path: { path: string; problem: string };
  invalid_pattern: { pattern: string; problem: string };
  internal: { problem: string };
}

export type ErrorCode = keyof ErrorDetails;

/** Why a lease's sandbox is no longer there. */
export type LossReason = "crashed" | "destroyed" | "expired" | "session-lost" | "superseded";

/** How a fleet's sandboxes divide, as far as the store knows. */
export interface CapacityCounts {
  leased: number;
  parked: number;
  blank: number;
  creating: number;
  stopping: number;
  queued: number;
}

interface ErrorSpec<Details> {
  /** HTTP status of an answer that carries this error. */
  readonly status: 400 | 401 | 403 | 404 | 409 | 410 | 412 | 413 | 415 | 416 | 422 | 429 | 500 | 501 | 503 | 504 | 507;
  /** Whether the same call can succeed later without anybody changing anything. */
  readonly retryable: boolean;
  /** The sentence a person reads. */
  readonly message: (details: Details) => string;
  /** What that person can do about it. */
  readonly remedy: string;
}

export const ERRORS: { readonly [Code in ErrorCode]: ErrorSpec<ErrorDetails[Code]> } = {
  invalid_thread_id: {
    status: 422,
    retryable: false,
    message: ({ value, pattern }) => `The thread id ${value} does not match ${pattern}.`,
    remedy: "Use 1 to 64 letters, digits, underscores or hyphens. Map foreign ids (for example by hashing) first.",
  },
  invalid_user_id: {
    status: 422,
    retryable: false,
    message: ({ value, pattern }) => `The user id ${value} does not match ${pattern}.`,
    remedy: "Use 1 to 128 letters, digits, underscores or hyphens. Map foreign ids (for example by hashing) first.",
  },
  invalid_request: {
    status: 422,
    retryable: false,
    message: ({ field, problem }) => `${field}: ${problem}.`,
    remedy: "Correct the named field and call again.",
  },
  config_invalid: {
    status: 500,
    retryable: false,
    message: ({ path, problem, suggestion }) =>
      `Configuration${path === "" ? "" : ` at ${path}`}: ${problem}.${suggestion === undefined ? "" : ` Did you mean ${suggestion}?`}`,
    remedy: "Correct the named key. `sandlot config schema` prints every key with its meaning.",
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
      `Thread ${thread} lives on blueprint ${actual}; it was asked for on ${wanted}.`,
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
    message: ({ package: name, neededBy }) => `${neededBy} needs the package ${name}, which is not installed.`,
    remedy: "Install the package that the error names; it is an optional peer dependency.",
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
    message: ({ sandboxId, generation, reason }) =>
      `Sandbox ${sandboxId} (generation ${generation}) is gone: ${reason}.`,
    remedy: "Acquire again: the workspace is kept, processes and temporary files are not.",
  },
  sandbox_in_use: {
    status: 409,
    retryable: true,
    message: ({ sandboxId, holders }) => `Sandbox ${sandboxId} is in use by ${holders.join(", ")}.`,
    remedy: "Wait until the leases end, or destroy with `force` to end them.",
  },
  sandbox_unreachable: {
    status: 503,
    retryable: true,
    message: ({ sandboxId, problem }) => `Sandbox ${sandboxId} does not answer: ${problem}.`,
    remedy: "Try again: not reachable is not dead, so nothing was destroyed.",
  },
  sandbox_not_found: {
    status: 404,
    retryable: false,
    message: ({ id }) => `There is no sandbox ${id}.`,
    remedy: "List the fleet to see what exists; a sandbox that ended has a short obituary in `explain`.",
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
    message: ({ leaseId }) => `Lease ${leaseId} was released; its sandbox can no longer be used through it.`,
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
  fleet_closed: {
    status: 503,
    retryable: false,
    message: ({ operation }) => `The fleet is closed; ${operation} is no longer possible.`,
    remedy: "Open a fleet again.",
  },
  exec_conflict: {
    status: 409,
    retryable: false,
    message: ({ execId }) => `The exec id ${execId} was already used for another command.`,
    remedy: "Choose a new exec id for a new command; repeat the identical call to follow the first one.",
  },
  exec_not_found: {
    status: 404,
    retryable: false,
    message: ({ execId }) => `There is no exec ${execId}; it never ran here, or its result is no longer kept.`,
    remedy: "Start it again. Results of ended commands are kept for a while, the newest longest.",
  },
  exec_limit: {
    status: 429,
    retryable: true,
    message: ({ running, max }) => `${running} commands run in this sandbox; at most ${max} may.`,
    remedy: "End commands that are no longer needed, or wait for `retryAfterMs`.",
  },
  stdin_closed: {
    status: 409,
    retryable: false,
    message: ({ execId }) => `The stdin of exec ${execId} is closed.`,
    remedy: "Spawn the command with `keepStdinOpen`, and write before ending its stdin.",
  },
  session_not_found: {
    status: 404,
    retryable: false,
    message: ({ sessionId }) => `There is no session ${sessionId}.`,
    remedy: "Open the session first; sessions end with their sandbox.",
  },
  session_busy: {
    status: 409,
    retryable: true,
    message: ({ sessionId }) => `Session ${sessionId} has too many commands waiting.`,
    remedy: "Wait for the running command, or open a session of your own.",
  },
  terminal_not_found: {
    status: 404,
    retryable: false,
    message: ({ terminalId }) => `There is no terminal ${terminalId}; it has ended or never was.`,
    remedy: "Open a terminal; list them to see which are open.",
  },
  wait_timeout: {
    status: 504,
    retryable: true,
    message: ({ waitedFor, timeoutMs }) => `Waited ${timeoutMs} ms for ${waitedFor}, which did not come.`,
    remedy: "Look at what the command has printed, or wait longer.",
  },
  unauthorized: {
    status: 401,
    retryable: false,
    message: ({ problem }) => `The request was refused: ${problem}.`,
    remedy: "Send the sandbox's id, generation and token with every request.",
  },
  forbidden: {
    status: 403,
    retryable: false,
    message: ({ problem }) => `Not allowed: ${problem}.`,
    remedy: "Use a key whose scope covers the request.",
  },
  rate_limited: {
    status: 429,
    retryable: true,
    message: ({ scope, max }) => `Too many requests (${scope}): at most ${max}.`,
    remedy: "Wait for `retryAfterMs`.",
  },
  route_not_found: {
    status: 404,
    retryable: false,
    message: ({ method, path }) => `There is no ${method} ${path}.`,
    remedy: "See `/docs` for every route.",
  },
  thread_exists: {
    status: 409,
    retryable: false,
    message: ({ thread }) => `Thread ${thread} already has a workspace.`,
    remedy: "Choose a thread that does not exist yet, or delete it first.",
  },
  payload_too_large: {
    status: 413,
    retryable: false,
    message: ({ what, maxBytes }) => `${what} is larger than ${maxBytes} bytes.`,
    remedy: "Send less, or raise the limit in the configuration.",
  },
  range_not_satisfiable: {
    status: 416,
    retryable: false,
    message: ({ path, sizeBytes }) => `The range lies outside ${path}, which has ${sizeBytes} bytes.`,
    remedy: "Ask for a range within the file.",
  },
  unsupported_media: {
    status: 415,
    retryable: false,
    message: ({ mediaType, problem }) => `${mediaType} cannot be used here: ${problem}.`,
    remedy: "Send the content in a type that the route documents.",
  },
  file_not_found: {
    status: 404,
    retryable: false,
    message: ({ path }) => `${path} does not exist.`,
    remedy: "List the directory to see what is there.",
  },
  file_exists: {
    status: 409,
    retryable: false,
    message: ({ path }) => `${path} exists already.`,
    remedy: "Choose another name, or remove what is there first.",
  },
  file_changed: {
    status: 412,
    retryable: false,
    message: ({ path, expected, actual }) =>
      `${path} is not as expected: version ${expected ?? "none"} was expected, ${actual ?? "none"} is there.`,
    remedy: "Read the file again, apply your change to what is there now, and write with its version.",
  },
  file_too_large: {
    status: 413,
    retryable: false,
    message: ({ path, sizeBytes, maxBytes }) => `${path} has ${sizeBytes} bytes; the limit is ${maxBytes}.`,
    remedy: "Read a range of it, or raise the limit.",
  },
  not_a_directory: {
    status: 409,
    retryable: false,
    message: ({ path }) => `${path} is not a directory.`,
    remedy: "Name a directory.",
  },
  is_a_directory: {
    status: 409,
    retryable: false,
    message: ({ path }) => `${path} is a directory.`,
    remedy: "Name a file, or use the recursive form of the call where it has one.",
  },
  directory_not_empty: {
    status: 409,
    retryable: false,
    message: ({ path }) => `${path} is not empty.`,
    remedy: "Remove recursively, or empty it first.",
  },
  read_only_path: {
    status: 409,
    retryable: false,
    message: ({ path }) => `${path} is read-only.`,
    remedy: "Write below /mnt/user-data, which is always writable.",
  },
  permission_denied: {
    status: 403,
    retryable: false,
    message: ({ path }) => `The sandbox's user may not do this with ${path}.`,
    remedy: "Work below /mnt/user-data, which belongs to the sandbox, or change the permissions inside the sandbox.",
  },
  disk_limit_exceeded: {
    status: 507,
    retryable: false,
    message: ({ path }) => `There is no room left for ${path}.`,
    remedy: "Remove files that are no longer needed, or raise the sandbox's disk limit.",
  },
  invalid_path: {
    status: 422,
    retryable: false,
    message: ({ path, problem }) => `The path ${JSON.stringify(path)} is not usable: ${problem}.`,
    remedy: "Give an absolute path without NUL bytes.",
  },
  invalid_pattern: {
    status: 422,
    retryable: false,
    message: ({ pattern, problem }) => `The pattern ${JSON.stringify(pattern)} is not usable: ${problem}.`,
    remedy: "Correct the pattern, or search literally.",
  },
  internal: {
    status: 500,
    retryable: false,
    message: ({ problem }) => `Something that should not happen did: ${problem}.`,
    remedy: "Report it with the message and what led to it.",
  },
};

/** The one error class of Sandlot. `code` decides everything; `details` are the facts of this case. */
export class SandlotError<Code extends ErrorCode = ErrorCode> extends Error {
  override readonly name = "SandlotError";
  readonly code: Code;
  readonly details: ErrorDetails[Code];

  constructor(code: Code, details: ErrorDetails[Code], options?: { cause?: unknown }) {
    super((ERRORS[code] as ErrorSpec<ErrorDetails[Code]>).message(details), options);
    this.code = code;
    this.details = details;
  }

  get status(): number {
    return ERRORS[this.code].status;
  }

  get retryable(): boolean {
    return ERRORS[this.code].retryable;
  }

  get remedy(): string {
    return ERRORS[this.code].remedy;
  }

  /** The one shape in which errors travel. */
  toJSON(): { code: Code; message: string; retryable: boolean; details: ErrorDetails[Code]; remedy: string } {
    const { code, message, retryable, details, remedy } = this;
    return { code, message, retryable, details, remedy };
  }
}

/** Narrows an unknown error to one code, so that its details have their type. */
export function isSandlotError<Code extends ErrorCode>(error: unknown, code?: Code): error is SandlotError<Code> {
  return error instanceof SandlotError && (code === undefined || error.code === code);
}
