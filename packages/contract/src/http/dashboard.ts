/** The dashboard's own routes: signing in, and what its pages show that no other route says. */

import { z } from "zod";
import { apiKeyInfoSchema } from "./operators.ts";

/** How long a one-time link works. It is on a terminal, and may be in its history. */
export const DASHBOARD_LINK_TTL_MS = 15 * 60_000;
/** How long a session lasts. A working day: then the key is asked for again. */
export const DASHBOARD_SESSION_TTL_MS = 12 * 3_600_000;

export const dashboardLinkSchema = z
  .object({
    path: z.string().describe("Below the gateway's address, for a browser. It works once."),
    expiresAt: z.number(),
  })
  .meta({ id: "DashboardLink" });

export const dashboardLinkUseSchema = z
  .strictObject({ token: z.string().min(1).max(1_000).describe("The part of the link after `#link=`.") })
  .meta({ id: "DashboardLinkUse" });

export const dashboardSessionSchema = z
  .object({
    key: apiKeyInfoSchema.describe("The key that the session belongs to, and whose rights it has."),
    expiresAt: z.number(),
  })
  .meta({ id: "DashboardSession" });

/** Milliseconds; 0 where nothing was measured. */
const latencySchema = z.object({ count: z.int(), p50Ms: z.number(), p95Ms: z.number() });

export const dashboardSliceSchema = z
  .object({
    at: z.number().describe("When it began."),
    acquires: z.record(z.string(), latencySchema).describe("Leases given, by path: held, parked, blank, cold."),
    created: z.int(),
    stopped: z.int(),
    lost: z.int(),
    refused: z.int().describe("Connections that egress refused."),
  })
  .meta({ id: "DashboardSlice" });

export const dashboardOverviewSchema = z
  .object({
    instance: z.string().describe("The instance whose gateway answers. Counts are its own."),
    version: z.string(),
    startedAt: z.number(),
    gateways: z.array(z.object({ instance: z.string(), address: z.string().nullable(), isSelf: z.boolean() })),
    limit: z.object({ max: z.int(), mode: z.string() }).nullable().describe("null: this gateway does not know it."),
    pool: z.record(z.string(), z.int()).describe("Blanks that are kept ready, by blueprint."),
    queued: z.int().describe("Acquires that waited for room, at the last report."),
    acquires: z.record(z.string(), latencySchema),
    losses: z.record(z.string(), z.int()).describe("Sandboxes lost while held, by reason."),
    refusals: z
      .array(z.object({ host: z.string(), port: z.int(), rule: z.string(), count: z.int(), at: z.number() }))
      .describe("Hosts that egress refused, the newest first."),
    openStreams: z.int(),
    sliceMs: z.int(),
    slices: z.array(dashboardSliceSchema).describe("The oldest first; times in which nothing happened are left out."),
  })
  .meta({ id: "DashboardOverview" });

export const dashboardFindingSchema = z
  .object({ name: z.string(), status: z.string(), detail: z.string(), fix: z.string().optional() })
  .meta({ id: "DashboardFinding" });

export const dashboardDoctorSchema = z
  .object({ findings: z.array(dashboardFindingSchema).nullable().describe("null: this gateway cannot look.") })
  .meta({ id: "DashboardDoctor" });

export const dashboardConfigurationSchema = z
  .object({
    file: z.string().nullable(),
    values: z
      .array(
        z.object({
          path: z.string(),
          value: z.string().describe("As JSON. Secrets are not shown."),
          origin: z.string().describe("`default`, `file`, or the name of an environment variable or a flag."),
        }),
      )
      .nullable()
      .describe("null: this gateway was started by a program, and does not know."),
    versions: z.record(z.string(), z.string()),
  })
  .meta({ id: "DashboardConfiguration" });

export type DashboardLink = z.infer<typeof dashboardLinkSchema>;
export type DashboardSession = z.infer<typeof dashboardSessionSchema>;
export type DashboardOverview = z.infer<typeof dashboardOverviewSchema>;
export type DashboardSlice = z.infer<typeof dashboardSliceSchema>;
export type DashboardFinding = z.infer<typeof dashboardFindingSchema>;
export type DashboardDoctor = z.infer<typeof dashboardDoctorSchema>;
export type DashboardConfiguration = z.infer<typeof dashboardConfigurationSchema>;
