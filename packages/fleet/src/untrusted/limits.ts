/**
 * How much a sandbox may answer, and how long that may take: one table for each kind of server inside.
 *
 * Untrusted code runs beside the daemon and may have replaced it. So a call without an entry cannot be made
 * (`DaemonPath`), or has the smallest limits (AIO). An answer that is too long or too late ends its connection.
 *
 *   maxBytes      what is held of one answer at most. Answers to calls without a waiting caller are kilobytes
 *   maxValues     of JSON: checking a value costs a microsecond or two of the fleet's processor. Twice what this version sends,
 *                 so that a later daemon may send more fields
 *   firstByteMs   until an answer begins; `null` where the caller's own limit or signal decides (a command that runs)
 *   bodyMs        from its first byte to its last, however slowly it comes
 */

import { SANDBOX_LIMITS } from "@sandlot/contract";

export interface ReplyLimit {
  readonly maxBytes: number;
  readonly maxValues: number;
  readonly firstByteMs: number | null;
  readonly bodyMs: number;
}

const KIB = 1024;
const MIB = 1024 * KIB;

/** A few numbers and a path, each of its bytes escaped. */
const SHORT: ReplyLimit = { maxBytes: 32 * KIB, maxValues: 256, firstByteMs: 30_000, bodyMs: 10_000 };
/** The same, for calls that first walk or write files. */
const FILE_WORK: ReplyLimit = { ...SHORT, firstByteMs: 300_000 };
/** Lists of names and descriptions. */
const LIST: ReplyLimit = { maxBytes: 2 * MIB, maxValues: 80_000, firstByteMs: 30_000, bodyMs: 30_000 };
const FOUND_FILES: ReplyLimit = { maxBytes: 16 * MIB, maxValues: 160_000, firstByteMs: 300_000, bodyMs: 60_000 };
/** Both streams of a command, each byte escaped. */
const OUTPUT: ReplyLimit = {
  maxBytes: 2 * 6 * SANDBOX_LIMITS.execOutputMaxBytes + 64 * KIB,
  maxValues: 64,
  firstByteMs: null,
  bodyMs: 120_000,
};
/** Streamed; see `STREAM_LIMITS`. */
const STREAM: ReplyLimit = { ...SHORT, bodyMs: 30_000 };

export const DAEMON_LIMITS = {
  "/sandlot/exec": OUTPUT,
  "/sandlot/spawn": FILE_WORK,
  "/sandlot/execs": { ...LIST, maxBytes: 16 * MIB },
  "/sandlot/exec/kill": SHORT,
  "/sandlot/exec/signal": SHORT,
  "/sandlot/exec/stdin": FILE_WORK,
  "/sandlot/exec/follow": STREAM,
  "/sandlot/wait/port": { ...SHORT, firstByteMs: null },
  "/sandlot/wait/output": { ...SHORT, maxBytes: 1 * MIB, firstByteMs: null },
  "/sandlot/files/read": { maxBytes: SANDBOX_LIMITS.readMaxBytes, maxValues: 0, firstByteMs: 60_000, bodyMs: 300_000 },
  "/sandlot/files/download": STREAM,
  "/sandlot/files/watch": STREAM,
  "/sandlot/files/upload": FILE_WORK,
  "/sandlot/files/write": FILE_WORK,
  "/sandlot/files/append": FILE_WORK,
  "/sandlot/files/mkdir": FILE_WORK,
  "/sandlot/files/rename": FILE_WORK,
  "/sandlot/files/remove": { ...FILE_WORK, firstByteMs: 900_000 },
  "/sandlot/files/stat": SHORT,
  "/sandlot/files/list": FOUND_FILES,
  "/sandlot/files/glob": FOUND_FILES,
  "/sandlot/files/grep": FOUND_FILES,
  "/sandlot/sessions": LIST,
  "/sandlot/sessions/open": SHORT,
  "/sandlot/sessions/exec": OUTPUT,
  "/sandlot/sessions/output": { ...OUTPUT, firstByteMs: 30_000 },
  "/sandlot/sessions/close": SHORT,
  "/sandlot/terminals": LIST,
  "/sandlot/terminals/open": { ...SHORT, maxBytes: 256 * KIB },
  "/sandlot/terminals/close": SHORT,
  "/sandlot/terminals/attach": STREAM,
  "/sandlot/connect": STREAM,
  "/sandlot/hold": STREAM,
  "/sandlot/rebind": SHORT,
  "/sandlot/renew": SHORT,
  "/sandlot/activity": SHORT,
  "/sandlot/processes": LIST,
  "/sandlot/ports": LIST,
  "/sandlot/usage": SHORT,
} as const satisfies Readonly<Record<string, ReplyLimit>>;

export type DaemonPath = keyof typeof DAEMON_LIMITS;

/** Two rings of output, half of their bytes escaped; more is read by offset. */
const AIO_OUTPUT: ReplyLimit = { ...OUTPUT, maxBytes: 64 * MIB };

/** Each of these has a deadline for the whole call (`AioCalls`). */
const AIO_LIMITS: Readonly<Record<string, ReplyLimit>> = {
  "/v1/sandbox": { ...LIST, maxBytes: 256 * KIB, maxValues: 4_000 },
  "/v1/bash/exec": AIO_OUTPUT,
  "/v1/bash/output": AIO_OUTPUT,
  "/v1/bash/sessions": { ...LIST, maxBytes: 256 * KIB, maxValues: 4_000 },
  "/v1/file/grep": FOUND_FILES,
};

/** Paths outside the table have short responses. */
export function aioLimit(path: string): ReplyLimit {
  return AIO_LIMITS[path] ?? SHORT;
}

export const STREAM_LIMITS = {
  /** An error response. */
  refusalMaxBytes: 64 * KIB,
  /** One frame of a followed command. The daemon sends 64 KiB at a time. */
  frameMaxBytes: 1 * MIB,
  /** One line of a watch: a path with each byte escaped, and a word. */
  lineMaxBytes: 32 * KIB,
  /** The time for a frame or line that has begun; silence between two is unlimited. */
  unitMs: 30_000,
  /** A download without data while its reader waits. */
  stallMs: 60_000,
  /** A connection upgrade. */
  upgradeMs: 30_000,
  /** The head of a previewed server's response: it may compute for a while first. */
  previewHeadMs: 300_000,
  /** The head of an AIO response: a command's response comes when it ends. */
  aioHeadMs: 3_600_000,
  /** Content that a server inside does not accept. */
  unsentMs: 60_000,
  /** Frames or lines per turn. */
  unitsAtOnce: 128,
  /** Frames of a type that this version does not know, between two that it knows. */
  unknownMaxBytes: 1 * MIB,
  /** One WebSocket message of a terminal. The daemon sends 32 KiB at a time. */
  terminalMessageMaxBytes: 256 * KIB,
  /** Input to a terminal that its daemon has not read. */
  terminalUnsentMaxBytes: 4 * MIB,
} as const;

/** How long a result may take after its command's time limit: the grace between TERM and KILL, and a busy machine. */
export const PATIENCE_MS = 30_000;
