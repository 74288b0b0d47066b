/** Remote leases on the wire. */

import { z } from "zod";
import type { Immutable } from "../open-enum.ts";
import { recoverySchema, threadIdSchema } from "../schemas.ts";
import { LEASE_TTL_DEFAULT_MS, LEASE_TTL_MAX_MS, LEASE_TTL_MIN_MS } from "./lease-lifetimes.ts";

export const leaseSeedSchema = z
  .union([
    z.strictObject({
      thread: threadIdSchema,
      checkpoint: z
        .string()
        .min(1)
        .max(200)
        .optional()
        .describe("Its id, the beginning of it, or its label. Absent: the files of now."),
    }),
    z.strictObject({ directory: z.string().regex(/^\//).max(4_096).describe("Of the gateway's host; for operators.") }),
  ])
  .meta({ id: "LeaseSeed" });

export type LeaseSeed = z.input<typeof leaseSeedSchema>;

export const leaseRequestSchema = z
  .strictObject({
    purpose: z.string().min(1).max(200).optional().describe("What for, in a word or two."),
    ttlMs: z
      .int()
      .min(LEASE_TTL_MIN_MS)
      .max(LEASE_TTL_MAX_MS)
      .default(LEASE_TTL_DEFAULT_MS)
      .describe("The lease ends by itself when it is not renewed for this long."),
    blueprint: z.string().min(1).max(64).optional().describe("What the sandbox is made from; default: `default`."),
    from: leaseSeedSchema
      .optional()
      .describe(
        "The files that a new thread begins with; for an archive, `PUT` it to the thread before. `thread_exists` where it has files.",
      ),
  })
  .meta({ id: "LeaseRequest" });

export const leaseSchema = z
  .object({
    leaseId: z.string(),
    sandboxId: z.string(),
    generation: z.int().describe("Grows whenever the thread gets another sandbox."),
    expiresAt: z.number().describe("Milliseconds since 1970, by the gateway's clock."),
    recovery: recoverySchema,
  })
  .meta({ id: "Lease" });

export type LeaseReply = Immutable<z.infer<typeof leaseSchema>>;

export const leaseRenewalSchema = z
  .object({
    leaseId: z.string(),
    expiresAt: z.number().describe("Milliseconds since 1970, by the gateway's clock."),
    present: leaseSchema
      .pick({ sandboxId: true, generation: true, recovery: true })
      .optional()
      .describe(
        "The sandbox of the lease now: after a crash another than before. Sent by the gateway that gave the lease.",
      ),
  })
  .meta({ id: "LeaseRenewal" });

export type LeaseRenewal = Immutable<z.infer<typeof leaseRenewalSchema>>;
