/** What runs in a sandbox, what listens there, and what it uses. */

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
    /** Of the workspace, as it was last measured, with what was written through the API since. Absent where the backend does not measure it. */
    diskBytes: z.number().exactOptional().describe("Of the workspace, as it was last measured."),
    /** Absent where the workspace has no limit. */
    diskMaxBytes: z.number().exactOptional(),
  })
  .meta({ id: "ResourceUsage" });

/** What the sandbox's cgroup has used; `null` where the kernel does not show it. */
export type ResourceUsage = Immutable<z.infer<typeof usageSchema>>;
