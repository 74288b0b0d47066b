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
  /** The exec it belongs to, if that is known. */
  execId: z.string().nullable(),
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
    /** Workspace size as last measured, plus writes through the API since. Absent if not measured. */
    diskBytes: z.number().exactOptional().describe("Of the workspace, as it was last measured."),
    /** Absent if the workspace has no limit. */
    diskMaxBytes: z.number().exactOptional(),
  })
  .meta({ id: "ResourceUsage" });

/** The usage of the sandbox's cgroup; `null` where the kernel does not show it. */
export type ResourceUsage = Immutable<z.infer<typeof usageSchema>>;
