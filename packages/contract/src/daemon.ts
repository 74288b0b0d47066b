/**
 * The wire between a fleet and sandboxd, the daemon inside a sandbox. Types and names only.
 *
 * HTTP/1.1 over a unix socket, an inherited listening descriptor or a TCP port. Every request carries the sandbox's id,
 * its generation and its token (`DAEMON_HEADERS`); without all three `unauthorized`, with other ones `stale_generation`.
 * An error is `{ error: SandlotError.toJSON() }` under the code's HTTP status.
 *
 *   POST /sandlot/exec          a JSON line (`ExecCall`), a newline, the bytes of stdin  → a result, see below, when it has ended
 *   POST /sandlot/spawn         the same                                                → SpawnedExec, at once
 *   GET  /sandlot/execs                                                                 → ExecInfo[]
 *   POST /sandlot/exec/kill     { execId }                                              → { found }
 *   POST /sandlot/exec/signal   { execId, signal }                                      → { found }
 *   POST /sandlot/exec/stdin    ?execId&end, bytes                                      → {}
 *   GET  /sandlot/exec/follow   ?execId&stdout&stderr&until&hold                        → frames, see below
 *   POST /sandlot/wait/port     WaitForPortCall                                         → {}
 *   POST /sandlot/wait/output   WaitForOutputCall                                       → WaitForOutputReply
 *   GET  /sandlot/files/read    ?path&offset&length | ?path&startLine&endLine           → bytes, at most `readMaxBytes`
 *   GET  /sandlot/files/download ?path&offset&length                                    → bytes, any number
 *   PUT  /sandlot/files/write   ?path&mode&ifVersion | ?path&mode&ifAbsent=1, bytes     → {}
 *   POST /sandlot/files/append  ?path, bytes                                            → {}
 *   POST /sandlot/files/{mkdir,rename,remove,stat,list,glob,grep}   JSON                → what `SandboxFiles` answers
 *   GET  /sandlot/files/watch   ?path&recursive                                         → a JSON line (`FileChange`) each
 *   POST /sandlot/sessions/open SessionOptions                                          → SessionInfo
 *   POST /sandlot/sessions/exec a JSON line (`SessionExecCall`), a newline, stdin       → a result, likewise
 *   GET  /sandlot/sessions/output ?sessionId&stdout&stderr&maxBytes                     → `OutputLine`, see below
 *   POST /sandlot/sessions/close { sessionId }                                          → { found }
 *   GET  /sandlot/sessions                                                              → SessionInfo[]
 *   POST /sandlot/terminals/open TerminalOptions                                        → TerminalInfo
 *   POST /sandlot/terminals/close { terminalId }                                        → { found }
 *   GET  /sandlot/terminals                                                             → TerminalInfo[]
 *   GET  /sandlot/terminals/attach ?terminalId&fromOffset, WebSocket                    binary: bytes; text: see below
 *   GET  /sandlot/connect       ?port, `Upgrade: sandlot-tunnel`                        101, then the port's own bytes
 *   GET  /sandlot/hold          one JSON line (`HoldGreeting`), then silence until one of both sides ends
 *   POST /sandlot/rebind        Credentials                                             → {}
 *   GET  /sandlot/{activity,processes,ports,usage}
 *   POST /sandlot/renew         counts as somebody who still wants this sandbox         → RenewReply
 *
 * A result is a JSON line (`ResultLine`), a newline, the bytes of stdout and those of stderr, when the call had
 * `outputMaxBytes`; otherwise an `ExecResult` as JSON, as earlier fleets ask for it.
 *
 * The output so far of a session is a JSON line (`OutputLine`), a newline, the bytes of stdout and those of stderr.
 *
 * A frame of `follow` is one byte of type, eight bytes of offset, four bytes of length (big-endian), then the payload:
 * output from that offset on; or, for a gap, nothing, and the offset is where output goes on; or the end, as JSON.
 *
 * On a terminal's WebSocket, binary frames are bytes: input to it, output of it, the first byte of output at the offset
 * that the last `TerminalNotice` of type `position` named. Text frames are JSON: `TerminalNotice` from the daemon,
 * `TerminalRequest` to it. A reader acknowledges what it has read; the daemon sends `TERMINAL_WINDOW_BYTES` beyond that
 * and then holds the terminal's programs back.
 */

export const DAEMON_HEADERS = {
  sandboxId: "x-sandlot-sandbox",
  generation: "x-sandlot-generation",
  token: "x-sandlot-token",
} as const;

/** What a follower gets. A gap means: the bytes from where the stream was to this frame's offset are lost. */
export const FRAME = { stdout: 1, stderr: 2, stdoutGap: 3, stderrGap: 4, end: 5 } as const;
export const FRAME_HEADER_BYTES = 13;

/** Where a sandbox finds the proxy that is its way out. What listens there is not the sandbox's own. */
export const EGRESS_PORT = 3_128;

/**
 * The AIO API of a sandbox, for a client that has no key: a tunnel to this port (`Lease.connect`) is served by the daemon itself.
 * Whoever may open the tunnel has shown who they are. Nothing listens on it inside.
 */
export const AIO_TUNNEL_PORT = 7_412;

/** Longer socket paths are an error: the kernel's limit is 108, and Node 20 cuts silently and reaches another socket. */
export const SOCKET_PATH_MAX_BYTES = 100;

/** What is asked for in the `Upgrade` header of a tunnel to a port. */
export const TUNNEL_PROTOCOL = "sandlot-tunnel";

/** How much output of a terminal is on its way to one reader. Less slows a busy screen, more delays an interrupt. */
export const TERMINAL_WINDOW_BYTES = 256 * 1024;

/** What a daemon is started with: one JSON line on the descriptor that `--config-fd` names. */
export interface DaemonConfig {
  readonly sandboxId: string;
  readonly generation: number;
  /** In the line itself its SHA-256 may stand instead, as `tokenHash`: then no secret enters the sandbox with it. */
  readonly token: string;
  readonly listen: DaemonListen;
  /** Where to say that it listens: one JSON line (`ReadyLine`), written to a descriptor or sent to a unix socket. */
  readonly ready?: { readonly fd: number } | { readonly path: string };
  /** Where the AIO API, and nothing else, is served without a key: a socket or port made for one client that has none. */
  readonly aioListen?: DaemonListen;
  /** Ends the daemon when nobody has asked or held for this long and nothing runs. Absent or 0: never. */
  readonly orphanTimeoutMs?: number;
  /** The environment of commands. The daemon's own is not passed on. */
  readonly environment?: Readonly<Record<string, string>>;
  /** Where commands start when they do not say. Default `/mnt/user-data/workspace`. */
  readonly defaultCwd?: string;
  /** The daemon's pid namespace is the sandbox's own, so whatever in it belongs to no command was left by one. */
  readonly ownsPidNamespace?: boolean;
  /** How long a process tree has between TERM and KILL. Default `SANDBOX_LIMITS.killGraceMs`. */
  readonly killGraceMs?: number;
  /** How long a held command without a follower waits for one. Default `SANDBOX_LIMITS.outputHoldMs`. */
  readonly outputHoldMs?: number;
  /** Put before every program that is run for somebody: commands, shells, terminals. For limits that a process sets itself. */
  readonly commandPrefix?: readonly string[];
  /** Carries connections to this port of the sandbox's own loopback to a unix socket: the way out to a proxy. */
  readonly forward?: { readonly port: number; readonly socketPath: string };
  /** Commands, sessions and terminals that may run at once. More is `exec_limit`. Default `EXEC_MAX`. */
  readonly execMax?: number;
}

/** How names begin of files that a fleet is writing from outside. Until they have their own name they are shown nowhere. */
export const DRAFT_PREFIX = ".sandlot-draft-";

/** Enough for any agent; each takes descriptors and memory of the daemon. */
export const EXEC_MAX = 256;

export type DaemonListen =
  | { readonly path: string }
  | { readonly fd: number }
  | { readonly host: string; readonly port: number };

export interface ExecCall {
  readonly execId: string;
  /** The caller chose the id and may come again with it. Otherwise the exec ends when its caller goes away. */
  readonly repeatable: boolean;
  readonly command: string | readonly string[];
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly timeoutMs?: number;
  /** Whether bytes of stdin follow the line, even if there are none. */
  readonly hasStdin: boolean;
  /** More of stdin may come later. Only for `spawn`. */
  readonly keepStdinOpen?: boolean;
  /** How much of the end of each stream the result holds. Only for `exec`. */
  readonly outputMaxBytes?: number;
  /** The command waits for its followers. Only for `spawn`. */
  readonly output?: "hold";
}

export interface SessionExecCall {
  readonly sessionId: string;
  readonly command: string;
  readonly timeoutMs?: number;
  readonly hasStdin: boolean;
  readonly outputMaxBytes?: number;
}

/** Text frames of a terminal's WebSocket, to the daemon. */
export type TerminalRequest =
  | { readonly type: "resize"; readonly columns: number; readonly rows: number }
  | { readonly type: "ack"; readonly offset: number };

export interface WaitForPortCall {
  readonly port: number;
  readonly timeoutMs: number;
}

export interface WaitForOutputCall {
  readonly execId: string;
  /** A regular expression that is tried on each line; with `literal`, a text. */
  readonly pattern: string;
  readonly literal?: boolean;
  readonly timeoutMs: number;
}
