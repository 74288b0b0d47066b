/** The limits of a sandbox's calls. */

/** Limits that every backend shares. Each trades completeness for a bounded answer. */
export const SANDBOX_LIMITS = {
  /** Bytes kept per output stream of a command; older ones are dropped and counted. */
  execOutputMaxBytes: 10 * 1024 * 1024,
  /** How much of each stream a result holds by default. Follow the rest from an offset. */
  execResultMaxBytes: 1024 * 1024,
  /**
   * How much output of a held command is kept behind its slowest follower: sent bytes may still be in the buffers of a
   * gateway and of two kernels, and a follower that was cut off requests them again.
   */
  outputRetainedBytes: 8 * 1024 * 1024,
  /** How long a held command without a follower waits for one, once its output buffer is full. */
  outputHoldMs: 30_000,
  /** A command without `timeoutMs` ends after this long. */
  execTimeoutMs: 600_000,
  /** How long a process tree has between TERM and KILL. */
  killGraceMs: 2_000,
  readMaxBytes: 100 * 1024 * 1024,
  /** The maximum, and the default, of a listing. */
  listMaxResults: 10_000,
  /** The default number of results: enough to judge the pattern. */
  globDefaultResults: 200,
  grepDefaultResults: 100,
  /** The maximum number of results. */
  globMaxResults: 1_000,
  grepMaxResults: 500,
  /** Larger files are not searched, only counted: they are rarely text to read. */
  grepFileMaxBytes: 1_000_000,
  /** Longer lines are not matched, only counted: regular expressions explode on them. */
  grepLineMaxChars: 2_000,
  /** A reported line is cut to this length, and then ends with `...`. */
  grepReportMaxChars: 200,
} as const;
