/** Results of file calls. */

import { z } from "zod";
import { type Immutable, openEnum } from "../open-enum.ts";

export const fileStatSchema = z
  .object({
    path: z.string(),
    kind: openEnum(["file", "directory", "symlink", "other"]),
    sizeBytes: z.number().nonnegative(),
    mode: z.int().describe("Permissions and the special bits, such as 0o644."),
    modifiedAt: z
      .number()
      .describe("Milliseconds since 1970. A program inside may set any time, also one that is no date."),
    version: z.string().describe("Opaque; changes whenever the content does. The `ETag` without its quotes."),
  })
  .meta({ id: "FileStat" });

/** A file or directory. `version` is opaque and changes whenever the content does. */
export type FileStat = Immutable<z.infer<typeof fileStatSchema>>;

export const fileListingSchema = z
  .object({ entries: z.array(fileStatSchema), truncated: z.boolean() })
  .meta({ id: "FileListing" });

export type FileListing = Immutable<z.infer<typeof fileListingSchema>>;

export const globReplySchema = z
  .object({ paths: z.array(z.string()), truncated: z.boolean() })
  .meta({ id: "GlobReply" });

export type GlobResult = Immutable<z.infer<typeof globReplySchema>>;

const grepMatchSchema = z.object({
  path: z.string(),
  lineNumber: z.int().describe("Counted from 1."),
  line: z.string(),
});

export type GrepMatch = Immutable<z.infer<typeof grepMatchSchema>>;

export const grepReplySchema = z
  .object({
    matches: z.array(grepMatchSchema),
    truncated: z.boolean().describe("There are more matches, or something could not be read."),
    skippedFiles: z
      .int()
      .min(0)
      .describe("Text files that may match but were not searched, because they are larger than `grepFileMaxBytes`."),
    skippedLines: z
      .int()
      .min(0)
      .describe("Lines that may match but were not searched, because they are longer than `grepLineMaxChars`."),
  })
  .meta({ id: "GrepReply" });

/** Matching lines. `truncated`: there are more, or something could not be read. Skipped content may match too. */
export type GrepResult = Immutable<z.infer<typeof grepReplySchema>>;

export const fileChangeSchema = z
  .object({
    type: openEnum(["ready", "created", "modified", "removed", "overflow"]).describe(
      "`ready`: watching has begun. `overflow`: changes were missed; list again. The others are about `path`; a rename is one of each.",
    ),
    path: z.string(),
  })
  .meta({ id: "FileChange" });

/** `ready`: watching has begun. `overflow`: changes were missed; list again. The others are about `path`. */
export type FileChange = Immutable<z.infer<typeof fileChangeSchema>>;
