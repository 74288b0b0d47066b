/** Threads, and the processes, ports and terminals inside their sandboxes. */

import { z } from "zod";
import { openEnum } from "../open-enum.ts";
import { listeningPortSchema, processInfoSchema } from "../results/processes.ts";
import { terminalExitSchema, terminalInfoSchema } from "../results/terminals.ts";
import { ENV_NAME_PATTERN } from "../sandbox.ts";
import { threadIdSchema, threadSummarySchema } from "../schemas.ts";

export const threadParamsSchema = z.strictObject({ thread: threadIdSchema });

export const threadDeleteQuerySchema = z.strictObject({
  force: z
    .enum(["true", "false"])
    .default("false")
    .transform((value) => value === "true")
    .describe("Also while it is in use: its leases are lost."),
});

export const threadListQuerySchema = z.strictObject({
  after: z.string().max(200).optional().describe("`next` of the list before this one."),
  limit: z.coerce.number().int().min(1).max(1_000).default(1_000),
});

export const threadListSchema = z
  .object({
    threads: z.array(threadSummarySchema),
    next: z.string().nullable().describe("Ask again with `after` for more; null when these were the last."),
    unlisted: z
      .array(z.object({ engine: z.string(), gateways: z.array(z.string()) }))
      .default([])
      .describe(
        "Engines of other hosts. Threads there that have files and no sandbox are not listed: ask these gateways.",
      ),
  })
  .meta({ id: "ThreadList" });

export const destroyReplySchema = z
  .object({
    outcome: openEnum(["absent", "stopped", "stopping"]).describe("`stopping`: not yet confirmed; ask again."),
  })
  .meta({ id: "DestroyReply" });

export const branchRequestSchema = z
  .strictObject({
    to: threadIdSchema,
    checkpoint: z.string().min(1).max(200).optional().describe("Its files; absent: those of now."),
    requestId: z
      .string()
      .regex(/^[A-Za-z0-9_-]{1,64}$/)
      .optional()
      .describe("Names the `checkpoint-progress` events of this call."),
  })
  .meta({ id: "BranchRequest" });
export const branchReplySchema = z
  .object({
    thread: z.string(),
    fileCount: z.int().nonnegative(),
    sizeBytes: z.number().nonnegative(),
    skipped: z
      .array(z.string())
      .describe(
        "What is not copied. Where the backend has no checkpoints: symbolic links, unfinished uploads, and the home.",
      ),
  })
  .meta({ id: "BranchReply" });

export type DestroyReply = z.infer<typeof destroyReplySchema>;
export type BranchReply = z.infer<typeof branchReplySchema>;

export const processListSchema = z.object({ processes: z.array(processInfoSchema) }).meta({ id: "ProcessList" });

export const portSchema = z.coerce.number().int().min(1).max(65_535);
export const portParamsSchema = z.strictObject({ thread: threadIdSchema, port: portSchema });

export const portListSchema = z.object({ ports: z.array(listeningPortSchema) }).meta({ id: "PortList" });

export const portWaitRequestSchema = z
  .strictObject({ timeoutMs: z.int().min(1).max(600_000) })
  .meta({ id: "PortWaitRequest" });

/** A link cannot be revoked before it expires, so it expires within a day. */
export const LINK_TTL_MAX_MS = 86_400_000;

export const portLinkRequestSchema = z
  .strictObject({
    ttlMs: z.int().min(1_000).max(LINK_TTL_MAX_MS).default(3_600_000),
    frame: z
      .boolean()
      .default(false)
      .describe("For a frame in a page of the gateway that is asked; pages of other origins cannot show it."),
  })
  .meta({ id: "PortLinkRequest" });

export const portLinkSchema = z
  .object({
    url: z.string().describe("For a browser: it becomes a cookie of that host."),
    direct: z
      .object({ url: z.string(), headers: z.record(z.string(), z.string()) })
      .describe("For a program: an address that resolves, and the headers to send with every request below it."),
    expiresAt: z.number(),
  })
  .meta({ id: "PortLink" });

export type PortLink = z.infer<typeof portLinkSchema>;

/** An AIO URL can be revoked, so it may live longer than a link. */
const AIO_URL_TTL_MAX_MS = 30 * 86_400_000;

export const aioUrlRequestSchema = z
  .strictObject({ ttlMs: z.int().min(1_000).max(AIO_URL_TTL_MAX_MS).default(86_400_000) })
  .meta({ id: "AioUrlRequest" });

export const aioUrlSchema = z
  .object({
    url: z.string().describe("The base URL for a client of AIO's API. It is the only credential: keep it secret."),
    linkId: z.string().describe("Names the URL when it is revoked; not a secret."),
    expiresAt: z.number(),
  })
  .meta({ id: "AioUrl" });

export type AioUrl = z.infer<typeof aioUrlSchema>;

export const aioLinkIdSchema = z.string().regex(/^[0-9a-f]{48}$/);
export const aioLinkParamsSchema = z.strictObject({ thread: threadIdSchema, linkId: aioLinkIdSchema });

export const aioRevokedSchema = z
  .object({ revoked: z.int().min(0).describe("How many URLs ended; 0 when there was none.") })
  .meta({ id: "AioRevoked" });

export const terminalIdSchema = z.string().regex(/^[A-Za-z0-9_.-]{1,128}$/);
const size = z.coerce.number().int().min(1).max(1_000);

export const terminalQuerySchema = z.strictObject({
  terminalId: terminalIdSchema.optional().describe("Attaches to this terminal, or opens one with this id."),
  columns: size.default(80),
  rows: size.default(24),
  offset: z.coerce.number().int().min(0).max(Number.MAX_SAFE_INTEGER).optional().describe("Where to go on."),
  cwd: z.string().max(4_096).optional(),
});

export const terminalRequestSchema = z
  .strictObject({
    terminalId: terminalIdSchema.optional(),
    command: z.array(z.string().max(131_072)).min(1).max(1_024).optional().describe("Default: an interactive shell."),
    cwd: z.string().max(4_096).optional(),
    env: z.record(z.string().regex(ENV_NAME_PATTERN).max(256), z.string().max(131_072)).optional(),
    columns: z.int().min(1).max(1_000),
    rows: z.int().min(1).max(1_000),
  })
  .meta({ id: "TerminalRequest" });

export const terminalListSchema = z.object({ terminals: z.array(terminalInfoSchema) }).meta({ id: "TerminalList" });

/** Text frames from a client. `ack` gives the total bytes that it has shown, and turns flow control on. */
export const terminalControlSchema = z.discriminatedUnion("type", [
  z.object({ type: z.literal("resize"), columns: z.int().min(1).max(1_000), rows: z.int().min(1).max(1_000) }),
  z.object({ type: z.literal("ack"), bytes: z.int().min(0) }),
]);

/** Text frames from the gateway: `ack` once, when the terminal is open; `exit` when its program has ended. */
export const terminalNoticeSchema = z.discriminatedUnion("type", [
  z.object({ type: z.literal("ack"), terminalId: z.string(), offset: z.int(), droppedBytes: z.int() }),
  terminalExitSchema,
]);
