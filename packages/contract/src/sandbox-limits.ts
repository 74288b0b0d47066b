/** What of a sandbox is bounded, and by how much. */

/** Limits that every backend shares. Each trades completeness for a bounded answer. */
export const SANDBOX_LIMITS = {
  /** Bytes kept per output stream of a command; older ones are dropped and counted. */
  execOutputMaxBytes: 10 * 1024 * 1024,
  /** Of each stream, what the result of a command holds unless more is asked for. The rest is followed from an offset. */
  execResultMaxBytes: 1024 * 1024,
  /**
   * Of a held command's output, this much is kept behind its slowest follower: what was sent may still be on its way, in the
   * buffers of a gateway and of two kernels, and a follower that was cut off asks for it again.
   */
  outputRetainedBytes: 8 * 1024 * 1024,
  /** How long a held command without a follower waits for one, once there is no more room for its output. */
  outputHoldMs: 30_000,
  /** A command without `timeoutMs` ends after this long. */
  execTimeoutMs: 600_000,
  /** How long a process tree has between TERM and KILL. */
  killGraceMs: 2_000,
  readMaxBytes: 100 * 1024 * 1024,
  /** What a listing gives at most, and when nothing is asked for. */
  listMaxResults: 10_000,
  /** Results when nothing is asked for: enough to see whether the question was the right one. */
  globDefaultResults: 200,
  grepDefaultResults: 100,
  /** Results at most, whatever is asked for. */
  globMaxResults: 1_000,
  grepMaxResults: 500,
  /** Larger files are not searched, only counted: they are hardly text that somebody wants to read. */
  grepFileMaxBytes: 1_000_000,
  /** Longer lines are not matched, only counted: they are where regular expressions explode. */
  grepLineMaxChars: 2_000,
  /** A reported line is cut to this length, and then ends with `...`. */
  grepReportMaxChars: 200,
} as const;
