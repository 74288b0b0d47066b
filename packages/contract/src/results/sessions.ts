/** Results of persistent shells. */

import { z } from "zod";
import type { Immutable } from "../open-enum.ts";
import { execResultSchema } from "./exec.ts";

export const sessionInfoSchema = z
  .object({ sessionId: z.string(), cwd: z.string(), createdAt: z.number(), busy: z.boolean() })
  .meta({ id: "SessionInfo" });

export type SessionInfo = Immutable<z.infer<typeof sessionInfoSchema>>;

/** The extra fields in the result of a session's command. */
export const sessionStateSchema = z.object({
  cwd: z.string().describe("The session's directory after the command."),
  shellEnded: z
    .boolean()
    .describe(
      "The shell itself ended (`exit`, a kill, a timeout); the next command gets a fresh one in the same directory.",
    ),
});

export const sessionExecResultSchema = execResultSchema
  .extend(sessionStateSchema.shape)
  .meta({ id: "SessionExecResult" });

/** Adds the session's directory after the command, and whether its shell ended: the next command gets a fresh one. */
export type SessionExecResult = Immutable<z.infer<typeof sessionExecResultSchema>>;
