/** The limits of the tools. Each trades completeness for a model's context size; a tool that cuts names the limit. */

export const TOOL_LIMITS = {
  /** Output of a tool beyond this many characters goes to a file. */
  outputBudgetChars: 12_000,
  /** The shown parts of such an output: the beginning says what it is, the end how it went. */
  synopsisHeadChars: 8_000,
  synopsisTailChars: 3_000,
  /** Of each stream of a running command: the end of its output since the last result. */
  runningOutputChars: 4_000,
  /** A file is shown up to this many characters; the rest by range. */
  readMaxChars: 50_000,
  /** Larger files are read by range through `bash` or `grep`, not into a model. */
  readFileMaxBytes: 10 * 1024 * 1024,
  imageMaxBytes: 5 * 1024 * 1024,
  /** More in one call is more than a model writes reliably. */
  writeMaxBytes: 81_920,
  /** `str_replace` holds the whole file in memory. */
  editMaxBytes: 10 * 1024 * 1024,
  listDepth: 2,
  listMaxEntries: 1_000,
  globResults: 200,
  globMaxResults: 1_000,
  grepResults: 100,
  grepMaxResults: 500,
  uploadsListed: 20,
  uploadsMaxListed: 100,
  /** The longest wait for one command of a model; a longer command runs in the background. */
  commandMaxSeconds: 3_600,
} as const;

/** The directory for output that is too long to show. */
export const TOOL_RESULTS_DIRECTORY = "/mnt/user-data/outputs/.tool-results";
