/** Results of file calls. */

import { z } from "zod";
import { type Immutable, openEnum } from "../open-enum.ts";

export const fileStatSchema = z
  .object({
    path: z.string(),
    kind: openEnum(["file", "directory", "symlink", "other"]),
    sizeBytes: z.number().nonnegative(),
    mode: z.int(),
    modifiedAt: z.number(),
    /** Changes whenever the content does. Opaque. */
    version: z.string().describe("Changes whenever the content does; the `ETag` without its quotes."),
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
  /** Counted from 1. */
  lineNumber: z.int(),
  line: z.string(),
});

export type GrepMatch = Immutable<z.infer<typeof grepMatchSchema>>;

export const grepReplySchema = z
  .object({
    matches: z.array(grepMatchSchema),
    /** There are more matches, or something could not be read. */
    truncated: z.boolean().describe("There are more matches, or something could not be read."),
    /** Text files that may match but were not searched, because they are larger than `grepFileMaxBytes`. */
    skippedFiles: z.int().min(0).describe("Text files that may match and were too large to be searched."),
    /** Lines that may match but were not searched, because they are longer than `grepLineMaxChars`. */
    skippedLines: z.int().min(0).describe("Lines that may match and were too long to be looked at."),
  })
  .meta({ id: "GrepReply" });

/** Matching lines. `truncated`: there are more, or something could not be read. Skipped content may match too. */
export type GrepResult = Immutable<z.infer<typeof grepReplySchema>>;

export const fileChangeSchema = z
  .object({
    /**
     * `ready`: watching has begun. `overflow`: changes were missed; list again. `created`, `modified` and `removed` are
     * about `path`; a rename is one of each.
     */
    type: openEnum(["ready", "created", "modified", "removed", "overflow"]),
    path: z.string(),
  })
  .meta({ id: "FileChange" });

/** `ready`: watching has begun. `overflow`: changes were missed; list again. The others are about `path`. */
export type FileChange = Immutable<z.infer<typeof fileChangeSchema>>;
