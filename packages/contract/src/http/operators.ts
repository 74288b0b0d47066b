/** The operators' view, limited for users to their own: sandboxes, their reasons, the audit log, health. */

import { z } from "zod";
import type { PoolMiss } from "../events.ts";
import { openEnum } from "../open-enum.ts";
import { sandboxSummarySchema, userIdSchema } from "../schemas.ts";
import { KEY_SCOPES } from "./key-scopes.ts";

export const sandboxIdSchema = z.string().regex(/^[A-Za-z0-9_-]{1,128}$/);

export const sandboxListSchema = z.object({ sandboxes: z.array(sandboxSummarySchema) }).meta({ id: "SandboxList" });

export const explanationSchema = z
  .object({
    sandboxId: z.string(),
    user: z.string().nullable(),
    thread: z.string().nullable(),
    engine: z.string().optional().describe("the engine that has it, if it is known"),
    state: openEnum(["creating", "leased", "parked", "blank", "stopping", "absent"]),
    summary: z.string(),
    holders: z.array(z.object({ who: z.string(), purpose: z.string(), since: z.number() })),
    stopped: z.object({ reason: z.string(), by: z.string(), at: z.number().nullable() }).nullable(),
    ends: z.object({ reason: z.string(), at: z.number() }).nullable(),
    history: z.array(z.looseObject({ type: z.string(), at: z.number(), instance: z.string() })),
  })
  .meta({ id: "Explanation" });

const missCount = z.int().exactOptional();
/** A reason that a later gateway names is left out. */
const MISSES = {
  unsupported: missCount,
  "not-kept": missCount,
  "own-mounts": missCount,
  "none-ready": missCount,
} satisfies Record<PoolMiss, unknown>;

export const poolReplySchema = z
  .object({
    summary: z.string().describe("In words: which blanks are kept, and why."),
    blueprints: z.array(
      z.object({
        blueprint: z.string(),
        target: z.int().describe("How many blanks are kept ready."),
        ready: z.int(),
        coming: z.int().describe("Blanks that are being made."),
        memoryBytes: z.int().nullable().describe("What the ready ones use now. `null`: the engine does not say."),
      }),
    ),
    hits: z.int().describe("New sandboxes of threads that were blanks, in this process."),
    misses: z.object(MISSES).describe("Those that were made, by reason, in this process."),
  })
  .meta({ id: "Pool" });

export type PoolReply = z.infer<typeof poolReplySchema>;

export const auditEntrySchema = z
  .object({
    at: z.number(),
    requestId: z.string(),
    keyId: z.string().nullable(),
    scope: z.string().nullable(),
    user: z.string().nullable(),
    thread: z.string().nullable(),
    method: z.string(),
    route: z.string(),
    status: z.int(),
    code: z.string().nullable().describe("The error, if there was one."),
    remoteAddress: z.string(),
    gateway: z.string().exactOptional().describe("The instance whose gateway was asked."),
  })
  .meta({ id: "AuditEntry" });

export type AuditEntry = z.infer<typeof auditEntrySchema>;

export const auditQuerySchema = z.strictObject({
  limit: z.coerce.number().int().min(1).max(1_000).default(100),
  user: z.string().max(128).optional(),
  thread: z.string().max(64).optional(),
});

export const auditFindingSchema = z
  .object({
    kind: openEnum(["unknown", "second", "gone"]).describe(
      "no record knows it; there is another beside it; it has ended and its record has not",
    ),
    sandboxId: z.string().nullable(),
    problem: z.string().describe("In words, for a person."),
  })
  .meta({ id: "AuditFinding" });

export const auditReplySchema = z
  .object({
    consistent: z.boolean().nullable().describe("Engine against store; null when they could not be compared."),
    findings: z.array(auditFindingSchema),
    entries: z.array(auditEntrySchema).describe("Who did what at this gateway, the newest first."),
    gateway: z
      .string()
      .exactOptional()
      .describe("The instance whose gateway answers. Each gateway of a store has an audit log of its own."),
  })
  .meta({ id: "AuditReply" });

export const healthSchema = z
  .object({
    status: openEnum(["ok"]),
    protocol: z.string().exactOptional().describe("The version of this API: `major.minor`."),
  })
  .meta({ id: "Health" });
export const readinessSchema = z
  .object({
    status: openEnum(["ready", "draining", "unavailable"]),
    checks: z.record(z.string(), z.string()),
  })
  .meta({ id: "Readiness" });

/** Shorter ones would expire before they were passed on; longer ones are meant to have no end. */
export const KEY_TTL_MIN_MS = 60_000;
export const KEY_TTL_MAX_MS = 10 * 365 * 86_400_000;

/** In `blueprints` of a key: every blueprint, also later ones. */
export const EVERY_BLUEPRINT = "*";
const grantedBlueprints = z
  .array(z.string().min(1).max(64))
  .max(100)
  .describe("Blueprints that the key may name; `*` is every one. A user's key without this list may name `default`.");

export const apiKeyInfoSchema = z
  .object({
    id: z.string(),
    scope: openEnum(KEY_SCOPES),
    user: z.string().nullable(),
    label: z.string().nullable(),
    // Keys of earlier releases have no list.
    blueprints: grantedBlueprints.nullable().default(null),
    createdAt: z.number(),
    expiresAt: z.number().nullable().default(null).describe("From then on it is refused; null: never."),
  })
  .meta({ id: "ApiKey" });

export type ApiKeyInfo = z.infer<typeof apiKeyInfoSchema>;

export const keyRequestSchema = z
  .strictObject({
    scope: z.enum(KEY_SCOPES),
    user: userIdSchema.optional().describe("Whose threads a key of scope `user` reaches; needed there and only there."),
    label: z.string().min(1).max(200).optional(),
    blueprints: grantedBlueprints.optional(),
    ttlMs: z
      .int()
      .min(KEY_TTL_MIN_MS)
      .max(KEY_TTL_MAX_MS)
      .optional()
      .describe("How long it works; without it, until it is revoked."),
  })
  .meta({ id: "KeyRequest" });

export const newKeySchema = apiKeyInfoSchema
  .extend({ key: z.string().describe("The key itself. It is shown this once.") })
  .meta({ id: "NewKey" });

export const keyListSchema = z.object({ keys: z.array(apiKeyInfoSchema) }).meta({ id: "KeyList" });

export type KeyRequest = z.infer<typeof keyRequestSchema>;
export type NewApiKey = z.infer<typeof newKeySchema>;

export type AuditFinding = z.infer<typeof auditFindingSchema>;
export type AuditReply = z.infer<typeof auditReplySchema>;
export type ExplanationReply = z.infer<typeof explanationSchema>;
