/** The routes of timelines, and of a sandbox's usage as it goes on. */

import { z } from "zod";
import { openEnum } from "../open-enum.ts";
import { usageSchema } from "../results/processes.ts";
import { TIMELINE_KINDS } from "../results/timeline-kinds.ts";

const offset = z.coerce.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const time = z.coerce.number().min(0).max(Number.MAX_SAFE_INTEGER);

const filter = {
  kind: z
    .string()
    .max(400)
    .transform((text) => text.split(",").filter((word) => word !== ""))
    .pipe(z.array(z.enum(TIMELINE_KINDS)).min(1))
    .optional()
    .describe(`Only these, separated by commas: ${TIMELINE_KINDS.join(", ")}.`),
  since: time.optional().describe("Not before this time, in milliseconds since 1970."),
  until: time.optional().describe("Not after this time."),
};

export const timelineQuerySchema = z.strictObject({
  ...filter,
  from: offset.optional().describe("The entries from this offset on. Default: the newest ones."),
  before: offset.optional().describe("The newest entries before this offset."),
  limit: z.coerce.number().int().min(1).max(1_000).default(200),
});

export const timelineFollowQuerySchema = z.strictObject({
  ...filter,
  from: offset.optional().describe("Begin at this offset. Default: at the entries to come."),
});

export const timelineExportQuerySchema = z.strictObject({
  ...filter,
  format: z.enum(["html", "json"]).default("html").describe("`html`: one page that needs nothing else, and no script."),
});

export const usageSampleSchema = z
  .object({
    at: z.number().describe("Milliseconds since 1970."),
    state: openEnum(["creating", "leased", "parked", "stopping", "absent"]),
    usage: usageSchema.nullable().describe("`null` while nothing holds the sandbox: looking would wake it."),
  })
  .meta({ id: "UsageSample" });

export type UsageSample = z.infer<typeof usageSampleSchema>;
