/** Messages that only a daemon sends to its fleet: readiness, activity, and the heads of results and outputs. */

import { z } from "zod";
import { type Immutable, openEnum } from "../open-enum.ts";
import { EXEC_STATUSES, execResultSchema } from "./exec.ts";
import { terminalExitSchema } from "./terminals.ts";

const bytes = z.int().nonnegative();
/** `PROTOCOL_VERSION` of the daemon. Absent before 0.2, `null` when it is not a version. */
const protocol = z.string().max(32).nullish().catch(null);

export const readyLineSchema = z.object({
  ready: z.literal(true),
  pid: z.int(),
  sandboxId: z.string(),
  generation: z.int(),
  /** The assigned port, if the daemon listens on TCP. */
  port: z.int().nullable(),
  /** The same for `aioListen`. */
  aioPort: z.int().nullable().exactOptional(),
  protocol,
});

export type ReadyLine = Immutable<z.infer<typeof readyLineSchema>>;

/** How the daemon found that its canary cannot be reached. */
const canaryReportSchema = z.object({
  /** Connections that got through before. */
  reachedCount: bytes,
  /** The code of the last attempt's error; `TIMEOUT` when there was no answer. */
  refusedBy: z.string().max(64),
  durationMs: z.number().nonnegative(),
});

export type CanaryReport = Immutable<z.infer<typeof canaryReportSchema>>;

export const holdGreetingSchema = z.object({
  pid: z.int(),
  generation: z.int(),
  /** Identifies one run of the daemon: after a restart, earlier execs are gone. */
  run: z.string(),
  protocol,
  /** What the canary of the configuration showed, if there was one. */
  canary: canaryReportSchema.nullish().catch(null),
});

export type HoldGreeting = Immutable<z.infer<typeof holdGreetingSchema>>;

export const renewReplySchema = z.object({ run: z.string() });

export type RenewReply = Immutable<z.infer<typeof renewReplySchema>>;

export const daemonActivitySchema = z.object({
  runningExecs: z.int(),
  openTerminals: z.int(),
  previewTrafficAt: z.number().nullable(),
  cpuShare: z.number(),
  /** Wall-clock time of the last exec or file call, or of the start. */
  lastActivityAt: z.number(),
  /** How many connections are held now. */
  heldCount: z.int(),
});

/** The activity that decides idleness. Asking for it is not activity. */
export type DaemonActivity = Immutable<z.infer<typeof daemonActivitySchema>>;

export const resultLineSchema = execResultSchema.omit({ stdout: true, stderr: true, omitted: true }).extend({
  stdoutBytes: bytes,
  stderrBytes: bytes,
  /** Held by the daemon and not sent. */
  stdoutOmittedBytes: bytes,
  stderrOmittedBytes: bytes,
});

/** The head of a result; the output bytes follow. For a session's command it has the session state as well. */
export type ResultLine = Immutable<z.infer<typeof resultLineSchema>> & {
  readonly cwd?: string;
  readonly shellEnded?: boolean;
};

export const outputLineSchema = z.object({
  execId: z.string().max(1_024),
  status: openEnum(["running", ...EXEC_STATUSES]),
  exitCode: z.int().nullable(),
  /** Where the bytes begin, how many there are, and how many were printed in total. */
  stdoutOffset: bytes,
  stdoutBytes: bytes,
  stdoutTotalBytes: bytes,
  stderrOffset: bytes,
  stderrBytes: bytes,
  stderrTotalBytes: bytes,
});

/** The output of a session's command until now. The bytes follow. */
export type OutputLine = Immutable<z.infer<typeof outputLineSchema>>;

/** Text frames of a terminal's WebSocket, from the daemon. */
export const daemonTerminalNoticeSchema = z.discriminatedUnion("type", [
  /** The next byte of output has this offset; earlier bytes, from the reader's position on, are no longer held. */
  z.object({ type: z.literal("position"), offset: bytes, droppedBytes: bytes }),
  /** All output was sent. */
  terminalExitSchema,
]);

export type TerminalNotice = Immutable<z.infer<typeof daemonTerminalNoticeSchema>>;
