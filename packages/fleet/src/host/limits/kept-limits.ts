/** The limits in an object's record: every process that attaches enforces the disk budget and reports the others. */

import { z } from "zod";

export const keptLimitsSchema = z.object({
  diskBytes: z.number().optional(),
  filesMax: z.number().optional(),
  memoryBytes: z.number().optional(),
  pidsMax: z.number().optional(),
});

export type KeptLimits = Readonly<z.infer<typeof keptLimitsSchema>>;
