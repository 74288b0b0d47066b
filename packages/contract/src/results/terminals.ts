/** Results of terminals. */

import { z } from "zod";
import type { Immutable } from "../open-enum.ts";

export const terminalInfoSchema = z
  .object({
    terminalId: z.string(),
    command: z.array(z.string()),
    columns: z.int(),
    rows: z.int(),
    createdAt: z.number(),
    attachedCount: z.int(),
  })
  .meta({ id: "TerminalInfo" });

export type TerminalInfo = Immutable<z.infer<typeof terminalInfoSchema>>;

export const terminalExitSchema = z.object({
  type: z.literal("exit"),
  exitCode: z.int().nullable(),
  signal: z.string().nullable(),
});
