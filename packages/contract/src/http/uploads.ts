/** Uploads and artifacts on the wire. Field names of files are those that DeerFlow's web client reads. */

import { z } from "zod";

export const uploadedFileSchema = z
  .strictObject({
    filename: z.string(),
    size: z.int().nonnegative(),
    path: z.string(),
    virtual_path: z.string(),
    artifact_url: z.string(),
    extension: z.string().optional(),
    modified: z.number().optional().describe("Seconds since 1970."),
    original_filename: z.string().optional().describe("When it was renamed because of a duplicate."),
    markdown_file: z.string().optional(),
    markdown_path: z.string().optional(),
    markdown_virtual_path: z.string().optional(),
    markdown_artifact_url: z.string().optional(),
    conversion_error: z.string().optional().describe("Why there is no Markdown although it was asked for."),
  })
  .meta({ id: "UploadedFile" });

export type UploadedFile = z.infer<typeof uploadedFileSchema>;

export const uploadReplySchema = z
  .strictObject({
    success: z.boolean(),
    files: z.array(uploadedFileSchema),
    message: z.string(),
    skipped_files: z.array(z.string()),
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
  .strictObject({ files: z.array(uploadedFileSchema), count: z.int().nonnegative() })
  .meta({ id: "UploadList" });

export const uploadLimitsSchema = z
  .strictObject({ max_files: z.int(), max_file_size: z.int(), max_total_size: z.int() })
  .meta({ id: "UploadLimits" });

export const uploadDeleteReplySchema = z
  .strictObject({ success: z.literal(true), message: z.string() })
  .meta({ id: "UploadDeleteReply" });

export const artifactQuerySchema = z.strictObject({
  download: z
    .enum(["true", "false"])
    .default("false")
    .transform((value) => value === "true"),
});

/** A text that an editor may send back whole. */
export const ARTIFACT_TEXT_MAX_BYTES = 2 * 1024 * 1024;

export const artifactEditSchema = z
  .strictObject({
    content: z.string(),
    expected_sha256: z.string().regex(/^[0-9a-f]{64}$/),
  })
  .meta({ id: "ArtifactEdit" });

export const artifactReplySchema = z
  .strictObject({ success: z.literal(true), path: z.string(), size: z.int().nonnegative(), sha256: z.string() })
  .meta({ id: "ArtifactReply" });
