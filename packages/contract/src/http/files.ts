/** Files on the wire. Content itself is bytes, with `ETag` and `Range`. */

import { z } from "zod";
import { workspacePath } from "../workspace-paths.ts";

/** The sandbox checks the path itself (`invalid_path`). Only the length is checked here. */
export const pathSchema = z
  .string()
  .max(16_384)
  .describe("A path inside the sandbox. A relative one is below `/mnt/user-data/workspace`.")
  .transform(workspacePath);

const flag = z.enum(["true", "false"]).transform((value) => value === "true");
const bounded = (max: number) => z.coerce.number().int().min(1).max(max);

export const pathQuerySchema = z.strictObject({ path: pathSchema });

export const fileWriteQuerySchema = z.strictObject({
  path: pathSchema,
  mode: z
    .string()
    .regex(/^[01]?[0-7]{3}$/, "must be an octal mode such as 644, without setuid and setgid")
    .optional(),
});

export const fileDeleteQuerySchema = z.strictObject({ path: pathSchema, recursive: flag.default(false) });

export const fileTextQuerySchema = z.strictObject({
  path: pathSchema,
  startLine: bounded(Number.MAX_SAFE_INTEGER).optional(),
  endLine: bounded(Number.MAX_SAFE_INTEGER).optional(),
  lossy: flag.default(false),
});

export const fileListQuerySchema = z.strictObject({
  path: pathSchema,
  depth: bounded(Number.MAX_SAFE_INTEGER).default(1),
  maxResults: bounded(Number.MAX_SAFE_INTEGER).optional(),
});

export const fileWatchQuerySchema = z.strictObject({ path: pathSchema, recursive: flag.default(true) });

export const globRequestSchema = z
  .strictObject({
    path: pathSchema,
    pattern: z.string().max(16_384),
    includeDirectories: z.boolean().optional(),
    maxResults: z.int().min(1).optional(),
  })
  .meta({ id: "GlobRequest" });

export const grepRequestSchema = z
  .strictObject({
    path: pathSchema,
    pattern: z.string().max(16_384),
    glob: z.string().min(1).max(4_096).optional(),
    literal: z.boolean().optional(),
    caseSensitive: z.boolean().optional(),
    maxResults: z.int().min(1).optional(),
  })
  .meta({ id: "GrepRequest" });

export const mkdirRequestSchema = z.strictObject({ path: pathSchema }).meta({ id: "MkdirRequest" });
export const renameRequestSchema = z.strictObject({ from: pathSchema, to: pathSchema }).meta({ id: "RenameRequest" });
