/** Uploads and artifacts on the wire. */

import { z } from "zod";

export const uploadedFileSchema = z
  .object({
    filename: z.string(),
    sizeBytes: z.int().nonnegative(),
    path: z.string().describe("Where commands find it."),
    artifactUrl: z.string().describe("Where this gateway serves it."),
    extension: z.string().optional().describe("With its dot; in lists only."),
    modifiedAt: z.number().optional().describe("Milliseconds since 1970; in lists only."),
    originalFilename: z.string().optional().describe("When it was renamed because of a duplicate."),
    markdownFilename: z.string().optional(),
    markdownPath: z.string().optional(),
    markdownArtifactUrl: z.string().optional(),
    conversionError: z.string().optional().describe("Why there is no Markdown although it was asked for."),
  })
  .meta({ id: "UploadedFile" });

export type UploadedFile = z.infer<typeof uploadedFileSchema>;

export const uploadReplySchema = z
  .object({
    success: z.boolean().describe("Whether every file that was sent is there."),
    files: z.array(uploadedFileSchema),
    message: z.string(),
    skippedFiles: z.array(z.string()),
  })
  .meta({ id: "UploadReply" });

export type UploadReply = z.infer<typeof uploadReplySchema>;

export const uploadQuerySchema = z.strictObject({
  convert: z
    .enum(["true", "false"])
    .default("false")
    .transform((value) => value === "true")
    .describe("Also make Markdown of documents."),
});

export const uploadListSchema = z
  .object({ files: z.array(uploadedFileSchema), count: z.int().nonnegative() })
  .meta({ id: "UploadList" });

export type UploadList = z.infer<typeof uploadListSchema>;

export const uploadLimitsSchema = z
  .object({ maxFiles: z.int(), maxFileBytes: z.int(), maxTotalBytes: z.int() })
  .meta({ id: "UploadLimits" });

export type UploadLimits = z.infer<typeof uploadLimitsSchema>;

export const uploadDeleteReplySchema = z
  .object({ success: z.boolean(), message: z.string() })
  .meta({ id: "UploadDeleteReply" });

export const artifactQuerySchema = z.strictObject({
  download: z
    .enum(["true", "false"])
    .default("false")
    .transform((value) => value === "true"),
});

/** The largest text that an editor may send back whole. */
export const ARTIFACT_TEXT_MAX_BYTES = 2 * 1024 * 1024;

/** DeerFlow's format, hence its spelling. */
export const artifactEditSchema = z
  .strictObject({
    content: z.string(),
    expected_sha256: z.string().regex(/^[0-9a-f]{64}$/),
  })
  .meta({ id: "ArtifactEdit" });

export const artifactReplySchema = z
  .object({ success: z.boolean(), path: z.string(), size: z.int().nonnegative(), sha256: z.string() })
  .meta({ id: "ArtifactReply" });
