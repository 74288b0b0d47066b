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
  /** How to get them. */
  remedy: z.string().describe("how to get them"),
});

/** The beginning of the output, beyond the `outputMaxBytes` of each stream that the result holds. */
export type OmittedOutput = Immutable<z.infer<typeof omittedOutputSchema>>;

export const execResultSchema = z
  .object({
    execId: z.string(),
    status: openEnum(EXEC_STATUSES),
    /** `null` when the command did not exit by itself. */
    exitCode: z.int().nullable().describe("null when the command did not exit by itself"),
    signal: z.string().nullable(),
    stdout: z.string(),
    stderr: z.string(),
    /** Bytes that were printed but are no longer held, because output is kept in a bounded ring. */
    stdoutDroppedBytes: bytes,
    stderrDroppedBytes: bytes,
    durationMs: z.number().nonnegative(),
    /** Absent when `stdout` and `stderr` hold everything that was not dropped. */
    omitted: omittedOutputSchema
      .exactOptional()
      .describe("the beginning of the output, where the result does not hold all of it"),
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
    exitCode: z.int().nullable(),
    pid: z.int().nullable(),
    startedAt: z.number(),
    /** The total bytes printed. */
    stdoutBytes: bytes,
    stderrBytes: bytes,
    /** `hold`: it runs and waits for its followers. */
    output: openEnum(EXEC_OUTPUT_MODES).exactOptional().describe("`hold`: it runs and waits for its readers."),
  })
  .meta({ id: "ExecInfo" });

/** A command that runs or is remembered. `stdoutBytes` and `stderrBytes` are the total bytes printed. */
export type ExecInfo = Immutable<z.infer<typeof execInfoSchema>>;

export const followEndSchema = z
  .object({
    execId: z.string(),
    status: openEnum(EXEC_STATUSES),
    exitCode: z.int().nullable(),
    signal: z.string().nullable(),
    /** The total bytes printed. */
    stdoutBytes: bytes,
    stderrBytes: bytes,
    durationMs: z.number().nonnegative(),
  })
  .meta({ id: "ExecEnd" });

/** The end of a followed exec. */
export type FollowEnd = Immutable<z.infer<typeof followEndSchema>>;

const outputPartSchema = z
  .object({
    /** Whole characters. Bytes that are not UTF-8 become U+FFFD, as in a result. */
    text: z.string().describe("Whole characters."),
    /** The offset of the first byte of `text`. Larger than requested if the bytes between are no longer held. */
    offset: bytes.describe("Of the first byte of `text`."),
    nextOffset: bytes.describe("Where to go on."),
    /** The total bytes printed. */
    totalBytes: bytes.describe("How much was printed in all."),
  })
  .meta({ id: "OutputPart" });

/**
 * A part of a stream: whole characters from the byte at `offset` on; the next part begins at `nextOffset`. `offset` is
 * larger than requested if the bytes between are no longer held.
 */
export type OutputPart = Immutable<z.infer<typeof outputPartSchema>>;

export const outputSoFarSchema = z
  .object({
    /** For a session's command: the id in its result. */
    execId: z.string(),
    status: openEnum(["running", ...EXEC_STATUSES]),
    /** `null` while it runs, and when it did not exit by itself. */
    exitCode: z.int().nullable(),
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
