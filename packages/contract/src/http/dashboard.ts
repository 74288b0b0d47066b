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
const usageSchema = z.object({ usedBytes: z.number(), totalBytes: z.number() });

export const dashboardSliceSchema = z
  .object({
    at: z.number().describe("When it began."),
    acquires: z.record(z.string(), latencySchema).describe("Leases given, by path: held, parked, blank, cold."),
    execs: z.int().describe("Commands that ended."),
    created: z.int(),
    stopped: z.int(),
    lost: z.int(),
    refused: z.int().describe("Connections that egress refused."),
    memoryBytes: z.number().describe("Used on the gateway's host, at the end of the slice; 0: not known."),
    diskBytes: z.number().describe("Used on the file system of the gateway's home; 0: not known."),
  })
  .meta({ id: "DashboardSlice" });

export const dashboardOverviewSchema = z
  .object({
    instance: z.string().describe("The instance whose gateway answers. Counts are its own."),
    version: z.string(),
    startedAt: z.number(),
    limit: z.object({ max: z.int(), mode: z.string() }).nullable().describe("null: this gateway does not know it."),
    pool: z.record(z.string(), z.int()).describe("Blanks that are kept ready, by blueprint."),
    poolHits: z.int().describe("New sandboxes of threads that were blanks."),
    poolMisses: z.record(z.string(), z.int()).describe("Those that were made, by why no blank served."),
    queued: z.int().describe("Acquires that waited for room, at the last report."),
    acquires: z.record(z.string(), latencySchema),
    execs: z.object({
      count: z.int().describe("Commands that ended since the start."),
      failed: z.int().describe("Of them those that did not end by themselves: killed, timed out, lost."),
      perSecond: z.number().describe("Over the last minute."),
    }),
    losses: z.record(z.string(), z.int()).describe("Sandboxes lost while held, by reason."),
    refusals: z
      .array(z.object({ host: z.string(), port: z.int(), rule: z.string(), count: z.int(), at: z.number() }))
      .describe("Hosts that egress refused, the newest first."),
    openStreams: z.int(),
    memory: usageSchema.nullable().describe("Of the gateway's host; null: not known."),
    disk: usageSchema.nullable().describe("Of the file system of the gateway's home; null: not known."),
    processBytes: z.number().describe("Memory of the gateway's process."),
    sliceMs: z.int(),
    slices: z
      .array(dashboardSliceSchema)
      .describe("The last six hours, the oldest first, joined into at most `bins`. Percentiles are the worst of them."),
  })
  .meta({ id: "DashboardOverview" });

export const DASHBOARD_BINS_MAX = 720;
export const dashboardOverviewQuerySchema = z.strictObject({
  bins: z.coerce.number().int().min(0).max(DASHBOARD_BINS_MAX).default(0).describe("How many slices; 0 is none."),
});

export const dashboardFleetSchema = z
  .object({
    gateways: z.array(
      z.object({
        instance: z.string(),
        address: z.string().nullable(),
        isSelf: z.boolean(),
        lastBeatAt: z.number().nullable().describe("Its last heartbeat, by the clock of the store."),
        overview: dashboardOverviewSchema.nullable().describe("null: it could not be asked; `problem` says why."),
        problem: z.string().nullable(),
      }),
    ),
  })
  .meta({ id: "DashboardFleet" });

export const dashboardFindingSchema = z
  .object({ name: z.string(), status: z.string(), detail: z.string(), fix: z.string().optional() })
  .meta({ id: "DashboardFinding" });

export const dashboardDoctorSchema = z
  .object({ findings: z.array(dashboardFindingSchema).nullable().describe("null: this gateway cannot look.") })
  .meta({ id: "DashboardDoctor" });

export const dashboardLogQuerySchema = z.strictObject({
  limit: z.coerce.number().int().min(1).max(1_000).default(500),
});

export const dashboardLogSchema = z
  .object({
    lines: z
      .array(
        z.object({
          number: z.int().describe("Goes on with every line since the start."),
          at: z.number().nullable(),
          level: z.string(),
          text: z.string(),
        }),
      )
      .nullable()
      .describe(
        "The last lines of this gateway's log, the newest last. null: it was started by a program, which has it.",
      ),
  })
  .meta({ id: "DashboardLog" });

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
export type DashboardLog = z.infer<typeof dashboardLogSchema>;
export type DashboardLogLine = NonNullable<DashboardLog["lines"]>[number];
export type DashboardFleet = z.infer<typeof dashboardFleetSchema>;
export type DashboardSlice = z.infer<typeof dashboardSliceSchema>;
export type DashboardFinding = z.infer<typeof dashboardFindingSchema>;
export type DashboardDoctor = z.infer<typeof dashboardDoctorSchema>;
export type DashboardConfiguration = z.infer<typeof dashboardConfigurationSchema>;
