/**
 * Every default, in one table, each with what it trades. Nothing else in the fleet has a default of its own for
 * something that can be configured; `sandlot config schema` shows these values.
 */

export const DEFAULTS = {
  /** Real commands, really isolated, with nothing but bubblewrap. What has no isolation has to be asked for. */
  backend: "local",

  local: {
    isolation: "bubblewrap",
    /** Not `nobody`, which other software shares. No account of this number needs to exist. */
    uid: 59_999,
    gid: 59_999,
    /** Both are memory that only what is written uses. Larger lets one sandbox take more of the host's. */
    tmpBytes: 1_073_741_824,
    homeBytes: 1_073_741_824,
  },

  docker: {
    /** Docker's API is what most engines speak. */
    engine: "docker",
    /** Made from `images/sandbox`; small, with what agents commonly use. */
    image: "sandlot/sandbox:1",
    /** A shared socket needs no network at all; a port is what is left where none can be shared. */
    transport: "auto",
    /** Only this machine reaches a daemon's port, which a token guards as well. Wider is a decision. */
    publishBind: "127.0.0.1",
    publishHost: "127.0.0.1",
    uid: 59_999,
    gid: 59_999,
    tmpBytes: 1_073_741_824,
    homeBytes: 1_073_741_824,
    /** What an image needs written outside /tmp, home and the workspace says so. */
    readOnlyRoot: true,
    /** An idle daemon costs next to nothing, and the engine takes many times as long to let one go on as a lease takes. */
    pauseParked: false,
    /** Asking a registry is the engine's usual behaviour, and only for what it does not have. */
    pull: "missing",
    /** Some gigabytes over a slow line. It does not count against `acquireTimeoutMs` of those who come later. */
    pullTimeoutMs: 600_000,
  },

  store: {
    /** Two processes on one host must not kill each other's sandboxes. Costs a file; `memory` is for a single process. */
    type: "sqlite",
    /** Below `home`, so that a fleet is moved, backed up or deleted as one directory. */
    fileName: "fleet.db",
    /** What the memory backend has made is gone with its process: a real backend must never find a record of it. */
    memoryFileName: "fleet-memory.db",
  },

  limits: {
    /** A machine that runs out of memory fails everybody; a refused acquire fails one caller, with a reason. */
    mode: "hard",
    /** What a large laptop carries at some 200 MB each. Higher serves more threads and risks swapping. */
    max: 50,
    /** 0: none. A fleet with one user needs no share; with several, a share protects them from each other. */
    maxPerUser: 0,
    /** Waiters are cheap, but each one ends in a timeout when the queue does not move: longer hides an overload. */
    queueMax: 100,
    /** Most peaks last less than `acquireTimeoutMs`. `reject` suits callers that have somewhere else to go. */
    onFull: "wait",
  },

  /** Long enough for a person to read an answer and reply, short enough that abandoned sandboxes free their memory. */
  idleTimeoutMs: 600_000,
  /**
   * A day. Work inside postpones the idle timeout, so without an upper bound one forgotten background process keeps a
   * sandbox for ever. The price: a conversation older than a day loses installed packages once, never its workspace.
   */
  maxLifetimeMs: 86_400_000,
  /** How long a store outage may last before unmanaged sandboxes end themselves, against how long leftovers cost. */
  orphanTimeoutMs: 120_000,
  /** Covers a cold start with an image that is present. Longer keeps callers hanging when the engine is in trouble. */
  acquireTimeoutMs: 60_000,
  /** How soon a dead peer's sandboxes are free again, against how long a busy process may stall and not be buried. */
  sessionLifetimeMs: 15_000,
  /** Ten seconds for processes to end and twenty for the engine. Shorter asks an engine twice that was only slow. */
  stopTimeoutMs: 30_000,
  /** A third of the session lifetime, the longest that is allowed: sooner costs wake-ups, later leaves things lying. */
  housekeepingIntervalMs: 5_000,
  /** An agent goes on after a crash and is told what was lost. Off, every use fails until the lease is released. */
  autoRestart: true,

  leakDetection: {
    /** 0: off. What counts as held too long depends on the application; a wrong guess is noise in every log. */
    afterMs: 0,
    /** A stack costs several times the acquire itself. */
    captureStacks: false,
  },

  activity: {
    /** A twentieth of a processor: above what idle servers and shells use, below what any real work does. */
    cpuShareMin: 0.05,
    /** A preview that somebody looks at reloads within a minute; longer keeps sandboxes for tabs nobody sees. */
    previewQuietMs: 60_000,
  },

  network: {
    /** Code that nobody has read does not reach the network unless somebody said so. */
    mode: "none",
    /** A secret that travels in the clear has to be asked for. */
    secretVia: "https",
  },
  mount: {
    /** A sandbox that may write to a host directory is a decision, not a default. */
    readOnly: true,
  },
} as const;

/** The blueprint of an acquire that names none. Every fleet has it, configured or not. */
export const DEFAULT_BLUEPRINT = "default";
