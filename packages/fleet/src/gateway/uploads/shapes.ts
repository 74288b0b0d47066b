/**
 * The spelling of responses about uploads: as everything else below `/v1/…`, and below `/api/…` as DeerFlow's web
 * client reads them.
 */

import {
  type UploadedFile,
  type UploadLimits,
  type UploadList,
  type UploadReply,
  uploadLimitsSchema,
  uploadListSchema,
  uploadReplySchema,
} from "@sandlot/contract";
import { z } from "zod";

/** The spelling of one prefix, and its schema. */
interface Shape<T> {
  readonly schema: z.ZodType;
  of(answer: T): unknown;
}

export interface UploadShapes {
  readonly reply: Shape<UploadReply>;
  readonly list: Shape<UploadList>;
  readonly limits: Shape<UploadLimits>;
}

export const OUR_SHAPES: UploadShapes = {
  reply: { schema: uploadReplySchema, of: (answer) => answer },
  list: { schema: uploadListSchema, of: (answer) => answer },
  limits: { schema: uploadLimitsSchema, of: (answer) => answer },
};

const fileSchema = z
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
  .meta({ id: "DeerFlowUploadedFile" });

const replySchema = z
  .strictObject({
    success: z.boolean(),
    files: z.array(fileSchema),
    message: z.string(),
    skipped_files: z.array(z.string()),
  })
  .meta({ id: "DeerFlowUploadReply" });

const listSchema = z
  .strictObject({ files: z.array(fileSchema), count: z.int().nonnegative() })
  .meta({ id: "DeerFlowUploadList" });

const limitsSchema = z
  .strictObject({ max_files: z.int(), max_file_size: z.int(), max_total_size: z.int() })
  .meta({ id: "DeerFlowUploadLimits" });

export const DEERFLOW_SHAPES: UploadShapes = {
  reply: {
    schema: replySchema,
    of: ({ success, files, message, skippedFiles }): z.input<typeof replySchema> => ({
      success,
      files: files.map(deerflowFile),
      message,
      skipped_files: skippedFiles,
    }),
  },
  list: {
    schema: listSchema,
    of: ({ files, count }): z.input<typeof listSchema> => ({ files: files.map(deerflowFile), count }),
  },
  limits: {
    schema: limitsSchema,
    of: ({ maxFiles, maxFileBytes, maxTotalBytes }): z.input<typeof limitsSchema> => ({
      max_files: maxFiles,
      max_file_size: maxFileBytes,
      max_total_size: maxTotalBytes,
    }),
  },
};

/** JSON omits `undefined`. */
function deerflowFile(file: UploadedFile): z.input<typeof fileSchema> {
  return {
    filename: file.filename,
    size: file.sizeBytes,
    path: file.path,
    virtual_path: file.path,
    artifact_url: file.artifactUrl,
    extension: file.extension,
    modified: file.modifiedAt === undefined ? undefined : file.modifiedAt / 1_000,
    original_filename: file.originalFilename,
    markdown_file: file.markdownFilename,
    markdown_path: file.markdownPath,
    markdown_virtual_path: file.markdownPath,
    markdown_artifact_url: file.markdownArtifactUrl,
    conversion_error: file.conversionError,
  };
}
