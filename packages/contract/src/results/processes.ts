/** The processes, listening ports and resource usage of a sandbox. */

import { z } from "zod";
import type { Immutable } from "../open-enum.ts";

export const processInfoSchema = z.object({
  pid: z.int(),
  parentPid: z.int(),
  command: z.string(),
  state: z.string(),
  residentBytes: z.number(),
  cpuMs: z.number(),
  execId: z.string().nullable().describe("The exec it belongs to, if that is known."),
});

export type ProcessInfo = Immutable<z.infer<typeof processInfoSchema>>;

export const listeningPortSchema = z.object({ port: z.int(), address: z.string(), pid: z.int().nullable() });

export type ListeningPort = Immutable<z.infer<typeof listeningPortSchema>>;

export const usageSchema = z
  .object({
    memoryBytes: z.number().nullable(),
    memoryMaxBytes: z.number().nullable(),
    processCount: z.number().nullable(),
    processMax: z.number().nullable(),
    cpuMs: z.number().nullable(),
    diskBytes: z
      .number()
      .exactOptional()
      .describe("Of the workspace, as last measured, plus writes through the API since. Absent if not measured."),
    networkReceivedBytes: z
      .number()
      .exactOptional()
      .describe("Through the sandbox's own network interface. Absent if it has none beside the loopback."),
    networkSentBytes: z.number().exactOptional().describe("Likewise."),
    diskMaxBytes: z.number().exactOptional().describe("Absent if the workspace has no limit."),
  })
  .meta({ id: "ResourceUsage" });

/** The usage of the sandbox's cgroup; `null` where the kernel does not show it. */
export type ResourceUsage = Immutable<z.infer<typeof usageSchema>>;
