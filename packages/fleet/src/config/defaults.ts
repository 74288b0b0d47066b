/**
 * Every default of the fleet, in one table, each with what it trades. Backends and stores have theirs in the `config.ts` of
 * their own folder. Nothing else has a default for something that can be configured; `sandlot config schema` shows all of them.
 */

export const DEFAULTS = {
  /** Real commands, really isolated, with nothing but bubblewrap. What has no isolation has to be asked for. */
  backend: "local",

  store: {
    /** Two processes on one host must not kill each other's sandboxes. Costs a file; `memory` is for a single process. */
    type: "sqlite",
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
