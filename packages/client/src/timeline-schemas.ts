/** A separate module: only a client that reads a timeline builds these. */

export { timelineEntrySchema, timelinePageSchema, usageSampleSchema } from "@sandlot/contract";
