/** What an entry of a timeline is about. A separate file, so that the command line lists them without loading a schema. */

export const TIMELINE_KINDS = [
  "lease",
  "command",
  "files",
  "limit",
  "refused",
  "crash",
  "sandbox",
  "checkpoint",
  "restore",
  "fork",
  "preview",
  "upload",
  "terminal",
  "lost",
] as const;
/** What an entry is about: the word to filter by. */
export type TimelineKind = (typeof TIMELINE_KINDS)[number];
