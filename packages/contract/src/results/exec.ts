/**
 * Results of commands, defined once: a daemon sends them, the fleet and the client read them, a gateway serves them.
 *
 * Invariant of this folder: readers drop unknown fields and pass on unknown words (`openEnum`), so that a later version
 * may add both.
 */

import { z } from "zod";
import { type Immutable, openEnum } from "../open-enum.ts";

export const EXEC_STATUSES = ["completed", "timed_out", "killed", "lost"] as const;
/** How a command ended, in the words of this version. */
export type ExecStatus = (typeof EXEC_STATUSES)[number];

export const STREAM_NAMES = ["stdout", "stderr"] as const;
/** One of the two streams of a command. */
export type StreamName = (typeof STREAM_NAMES)[number];

const bytes = z.int().nonnegative();

export const omittedOutputSchema = z.object({
  stdoutBytes: bytes,
  stderrBytes: bytes,
  remedy: z.string().describe("How to get them."),
});

/** The beginning of the output, beyond the `outputMaxBytes` of each stream that the result holds. */
export type OmittedOutput = Immutable<z.infer<typeof omittedOutputSchema>>;

export const execResultSchema = z
  .object({
    execId: z.string(),
    status: openEnum(EXEC_STATUSES),
    exitCode: z.int().nullable().describe("`null` when the command did not exit by itself."),
    signal: z.string().nullable().describe("The signal that ended it, such as `SIGKILL`."),
    stdout: z.string().describe("The end of its output: at most `outputMaxBytes`."),
    stderr: z.string().describe("Likewise."),
    stdoutDroppedBytes: bytes.describe("Printed and no longer held: output is kept in a bounded ring."),
    stderrDroppedBytes: bytes.describe("Likewise."),
    durationMs: z.number().nonnegative().describe("From its start to its end, in milliseconds."),
    omitted: omittedOutputSchema
      .exactOptional()
      .describe(
        "The beginning of the output, where the result does not hold all of it. Absent when it holds everything that was not dropped.",
      ),
  })
  .meta({ id: "ExecResult" });

/**
 * The result of a command. `exitCode` is `null` when it did not exit by itself. Dropped bytes were printed and are no
 * longer held; `omitted` counts held bytes outside `stdout` and `stderr`, and is absent when there are none.
 */
export type ExecResult = Immutable<z.infer<typeof execResultSchema>>;

export const spawnedExecSchema = z
  .object({ execId: z.string(), pid: z.int().nullable() })
  .meta({ id: "BackgroundExec" });

export type SpawnedExec = Immutable<z.infer<typeof spawnedExecSchema>>;

export const EXEC_OUTPUT_MODES = ["ring", "hold"] as const;
export type ExecOutputMode = (typeof EXEC_OUTPUT_MODES)[number];

export const execInfoSchema = z
  .object({
    execId: z.string(),
    command: z.union([z.string(), z.array(z.string())]),
    status: openEnum(["running", ...EXEC_STATUSES]),
    exitCode: z.int().nullable().describe("`null` while it runs, and when it did not exit by itself."),
    pid: z.int().nullable().describe("Inside the sandbox."),
    startedAt: z.number().describe("Milliseconds since 1970, by the sandbox's clock."),
    stdoutBytes: bytes.describe("The total printed."),
    stderrBytes: bytes.describe("The total printed."),
    output: openEnum(EXEC_OUTPUT_MODES).exactOptional().describe("`hold`: it runs and waits for its followers."),
  })
  .meta({ id: "ExecInfo" });

/** A command that runs or is remembered. `stdoutBytes` and `stderrBytes` are the total bytes printed. */
export type ExecInfo = Immutable<z.infer<typeof execInfoSchema>>;

export const followEndSchema = z
  .object({
    execId: z.string(),
    status: openEnum(EXEC_STATUSES),
    exitCode: z.int().nullable().describe("`null` when the command did not exit by itself."),
    signal: z.string().nullable().describe("The signal that ended it, such as `SIGKILL`."),
    stdoutBytes: bytes.describe("The total printed."),
    stderrBytes: bytes.describe("The total printed."),
    durationMs: z.number().nonnegative().describe("From its start to its end, in milliseconds."),
  })
  .meta({ id: "ExecEnd" });

/** The end of a followed exec. */
export type FollowEnd = Immutable<z.infer<typeof followEndSchema>>;

const outputPartSchema = z
  .object({
    text: z.string().describe("Whole characters. Bytes that are not UTF-8 become U+FFFD, as in a result."),
    offset: bytes.describe(
      "Of the first byte of `text`: larger than requested if the bytes between are no longer held.",
    ),
    nextOffset: bytes.describe("Where to go on."),
    totalBytes: bytes.describe("The total printed."),
  })
  .meta({ id: "OutputPart" });

/**
 * A part of a stream: whole characters from the byte at `offset` on; the next part begins at `nextOffset`. `offset` is
 * larger than requested if the bytes between are no longer held.
 */
export type OutputPart = Immutable<z.infer<typeof outputPartSchema>>;

export const outputSoFarSchema = z
  .object({
    execId: z.string().describe("For a session's command: the id in its result."),
    status: openEnum(["running", ...EXEC_STATUSES]),
    exitCode: z.int().nullable().describe("`null` while it runs, and when it did not exit by itself."),
    stdout: outputPartSchema,
    stderr: outputPartSchema,
  })
  .meta({ id: "OutputSoFar" });

/** The output of a command until now. `exitCode` is `null` while it runs, and when it did not exit by itself. */
export type OutputSoFar = Immutable<z.infer<typeof outputSoFarSchema>>;

export const foundSchema = z.object({ found: z.boolean() }).meta({ id: "KillReply" });

export const waitForOutputReplySchema = z
  .discriminatedUnion("matched", [
    z.object({ matched: z.literal(true), stream: openEnum(STREAM_NAMES), line: z.string() }),
    /** The output ended without a match. */
    z.object({ matched: z.literal(false) }),
  ])
  .meta({ id: "WaitForOutputReply" });

export type WaitForOutputReply = Immutable<z.infer<typeof waitForOutputReplySchema>>;
