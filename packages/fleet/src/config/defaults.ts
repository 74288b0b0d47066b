/**
 * Every default of the fleet, in one table, each with its trade-off. Backends and stores have theirs in the `config.ts`
 * of their own folder. No other file has a default for a configurable value; `sandlot config schema` shows all of them.
 */

export const DEFAULTS = {
  /** Real commands, really isolated, with nothing but bubblewrap. A backend without isolation has to be chosen. */
  backend: "local",

  store: {
    /** Two processes on one host must not kill each other's sandboxes. Costs a file; `memory` is for one process. */
    type: "sqlite",
  },

  limits: {
    /** A machine without memory fails every caller; a refused acquire fails one, with a reason. */
    mode: "hard",
    /** A large laptop's capacity at some 200 MB each. Higher serves more threads and risks swapping. */
    max: 50,
    /** 0: none. A fleet with one user needs no share; with several, a share protects them from each other. */
    maxPerUser: 0,
    /** 0: none. On one host it would be `max` again; hosts that share a store each have their own memory. */
    maxPerEngine: 0,
    /** Waiters are cheap, but each ends in a timeout when the queue does not move: a longer queue hides an overload. */
    queueMax: 100,
    /** Most peaks last less than `acquireTimeoutMs`. `reject` suits callers with an alternative. */
    onFull: "wait",
  },

  /** Long enough for a person to read an answer and reply, short enough that abandoned sandboxes free their memory. */
  idleTimeoutMs: 600_000,
  /**
   * A day. Work inside postpones the idle timeout, so without an upper bound one forgotten background process keeps a
   * sandbox for ever. The price: a conversation older than a day loses its processes once, never its workspace.
   */
  maxLifetimeMs: 86_400_000,
  /** How long a store outage may last before unmanaged sandboxes end themselves, against how long leftovers cost. */
  orphanTimeoutMs: 120_000,
  /** Covers a cold start with an image that is present. Longer keeps callers hanging when the engine is in trouble. */
  acquireTimeoutMs: 60_000,
  /** How soon a dead peer's sandboxes are free again, against how long a busy process may stall unpunished. */
  sessionLifetimeMs: 15_000,
  /** Ten seconds for processes to end and twenty for the engine. Shorter repeats the request to a slow engine. */
  stopTimeoutMs: 30_000,
  /** A third of the session lifetime, the allowed maximum: sooner costs wake-ups, later delays cleanup. */
  housekeepingIntervalMs: 5_000,
  /** An agent goes on after a crash and learns what was lost. Off, every use fails until the release. */
  autoRestart: true,

  checkpoints: {
    /** An agent's mistake is found after its turn: a state before it must exist without having been asked for. */
    automatic: true,
    /** Longer than the pause between two commands of a turn, shorter than the one between two turns. */
    quietMs: 10_000,
    /** Reading a disk that is full takes minutes; a call that makes no progress ends sooner. */
    timeoutMs: 600_000,
    /** One core and one disk stay free for sandboxes. */
    concurrentMax: 2,
    /** What a package manager can fetch again is most of the bytes of many homes. */
    leftOut: [".home/.cache", ".home/.npm/_cacache"],
    perThreadMax: 200,
    perUserMax: 2_000,
    maxAgeDays: 30,
    /** Twenty times a large project, so that its history fits, and a disk of a few hundred GiB for several users. */
    perThreadBytes: 20 * 1024 ** 3,
    perUserBytes: 50 * 1024 ** 3,
    readBytes: 20 * 1024 ** 3,
    /** Enough for sandboxes to go on. */
    freeBytes: 512 * 1024 ** 2,
  },

  environments: {
    /** An index that is away for a minute does not stop a blueprint for long; a wrong setup is not built all day. */
    retryAfterMs: 600_000,
    /** A month covers a project that rests; building again costs minutes. */
    maxAgeDays: 30,
    /** Four environments of the largest default size. */
    maxTotalBytes: 20 * 1_024 ** 3,
  },

  timeline: {
    /** What happened is asked afterwards, when it is too late to begin. At most 1 MiB a thread. */
    enabled: true,
  },

  leakDetection: {
    /** 0: off. The right value depends on the application; a wrong one is noise in every log. */
    afterMs: 0,
    /** A stack costs several times the acquire itself. */
    captureStacks: false,
  },

  activity: {
    /** A twentieth of a processor: above what idle servers and shells use, below what any real work does. */
    cpuShareMin: 0.05,
    /** An open preview reloads within a minute; a longer time keeps sandboxes for hidden tabs. */
    previewQuietMs: 60_000,
  },

  setup: { timeoutMs: 30 * 60_000, diskBytes: 5 * 1_024 ** 3 },
  network: {
    /** Unreviewed code does not reach the network unless the operator allows it. */
    mode: "none",
    /** Sending a secret in the clear has to be configured. */
    secretVia: "https",
  },
  mount: {
    /** Write access to a host directory is a decision, not a default. */
    readOnly: true,
  },
} as const;

/** The blueprint of an acquire that names none. Every fleet has it, configured or not. */
export const DEFAULT_BLUEPRINT = "default";
