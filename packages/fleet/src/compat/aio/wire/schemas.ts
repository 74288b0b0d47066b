/** The parts of AIO's responses that are used. Everything else is optional. */

import { z } from "zod";

export const sandboxSchema = z.object({ home_dir: z.string(), version: z.string(), detail: z.object({}) });

export const commandStatusSchema = z.enum(["pending", "running", "completed", "timed_out", "killed"]);
export type CommandStatus = z.infer<typeof commandStatusSchema>;

export const bashExecSchema = z.object({
  session_id: z.string(),
  command_id: z.string(),
  status: commandStatusSchema,
  stdout: z.string().nullish(),
  stderr: z.string().nullish(),
  exit_code: z.int().nullish(),
  offset: z.int().default(0),
  stderr_offset: z.int().default(0),
});

export const bashOutputSchema = z.object({
  stdout: z.string().default(""),
  stderr: z.string().default(""),
  offset: z.int().default(0),
  stderr_offset: z.int().default(0),
  // Null when there was no command, which is not requested here.
  command: z.object({ status: commandStatusSchema, exit_code: z.int().nullish() }),
});

const bashSessionSchema = z.object({ session_id: z.string(), current_command: z.string().nullish() });

/** The API's description does not define the container of the sessions. */
export const bashSessionsSchema = z
  .union([
    z.array(bashSessionSchema),
    z.object({ sessions: z.array(bashSessionSchema) }).transform(({ sessions }) => sessions),
    z
      .object({ sessions: z.record(z.string(), bashSessionSchema) })
      .transform(({ sessions }) => Object.values(sessions)),
    z.record(z.string(), bashSessionSchema).transform((sessions) => Object.values(sessions)),
  ])
  .transform((sessions): readonly z.infer<typeof bashSessionSchema>[] => sessions);

export const shellStatsSchema = z.object({ active_sessions: z.int() });

export const fileWrittenSchema = z.object({ file: z.string() });

export const grepSchema = z.object({
  matches: z.array(z.object({ file: z.string(), line_number: z.int(), line_content: z.string() })).default([]),
  truncated: z.boolean().default(false),
});

export const anythingSchema = z.unknown();
