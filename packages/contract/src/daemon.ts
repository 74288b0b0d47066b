/**
 * The wire between a fleet and sandboxd, the daemon inside a sandbox. Types and names only.
 *
 * HTTP/1.1 over a unix socket, an inherited listening descriptor or a TCP port, there also inside TLS with a pre-shared
 * key (`PresharedKey`). Every request carries the sandbox's id,
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
 *   POST /sandlot/rebind        Credentials, hold, expect (`RebindExpectation`)         → {}
 *   GET  /sandlot/{activity,processes,ports,usage}
 *   POST /sandlot/renew         shows that a fleet still needs this sandbox             → RenewReply
 *
 * A result is a JSON line (`ResultLine`), a newline, the bytes of stdout and those of stderr, when the call had
 * `outputMaxBytes`; otherwise an `ExecResult` as JSON, for earlier fleets.
 *
 * The output so far of a session is a JSON line (`OutputLine`), a newline, the bytes of stdout and those of stderr.
 *
 * A frame of `follow` is one byte of type, eight bytes of offset, four bytes of length (big-endian), then the payload:
 * output from that offset on; an empty gap, after which output continues at the offset; or the end, as JSON.
 *
 * On a terminal's WebSocket, binary frames are input and output bytes. The last `TerminalNotice` of type `position`
 * gives the offset of the first byte of output. Text frames are JSON: `TerminalNotice` from the daemon,
 * `TerminalRequest` to it. A reader acknowledges the bytes it has read; the daemon sends `TERMINAL_WINDOW_BYTES` beyond
 * that and then blocks the terminal's programs.
 */

import { SandlotError } from "./errors.ts";

export const DAEMON_HEADERS = {
  sandboxId: "x-sandlot-sandbox",
  generation: "x-sandlot-generation",
  token: "x-sandlot-token",
} as const;

/** The frames of a follower. A gap means: the bytes from the stream's position to this frame's offset are lost. */
export const FRAME = { stdout: 1, stderr: 2, stdoutGap: 3, stderrGap: 4, end: 5 } as const;
export const FRAME_HEADER_BYTES = 13;

/** The port of the egress proxy inside a sandbox. The listener does not belong to the sandbox. */
export const EGRESS_PORT = 3_128;

/**
 * The AIO API of a sandbox for a client without a key: the daemon itself serves a tunnel to this port
 * (`Lease.connect`). Opening the tunnel already needs authentication. Nothing listens on this port inside.
 */
export const AIO_TUNNEL_PORT = 7_412;

/** Longer socket paths are an error: the kernel's limit is 108, and Node 20 silently cuts and reaches another. */
export const SOCKET_PATH_MAX_BYTES = 100;

/** The `Upgrade` header of a tunnel to a port. */
export const TUNNEL_PROTOCOL = "sandlot-tunnel";

/** The unacknowledged output of a terminal per reader. Less slows a busy screen, more delays an interrupt. */
export const TERMINAL_WINDOW_BYTES = 256 * 1024;

/** The daemon's start configuration: one JSON line on the descriptor of `--config-fd`. */
export interface DaemonConfig {
  readonly sandboxId: string;
  readonly generation: number;
  /** The line may have its SHA-256 instead, as `tokenHash`: then no secret enters the sandbox with it. */
  readonly token: string;
  readonly listen: DaemonListen;
  /** Where the daemon reports that it listens: one JSON line (`ReadyLine`), to a descriptor or a unix socket. */
  readonly ready?: { readonly fd: number } | { readonly path: string };
  /** Serves only the AIO API, without a key: a socket or port made for one client that has none. */
  readonly aioListen?: DaemonListen;
  /** Ends the daemon after this long without requests or holds, if nothing runs. Absent or 0: never. */
  readonly orphanTimeoutMs?: number;
  /** The environment of commands. The daemon does not pass on its own. */
  readonly environment?: Readonly<Record<string, string>>;
  /** The default working directory of commands. Default `/mnt/user-data/workspace`. */
  readonly defaultCwd?: string;
  /** The daemon's pid namespace is the sandbox's own, so a process in it without a command was left by one. */
  readonly ownsPidNamespace?: boolean;
  /** The time between TERM and KILL for a process tree. Default `SANDBOX_LIMITS.killGraceMs`. */
  readonly killGraceMs?: number;
  /** How long a held command without a follower waits for one. Default `SANDBOX_LIMITS.outputHoldMs`. */
  readonly outputHoldMs?: number;
  /** A prefix for every program of a caller: commands, shells, terminals. For limits that a process sets itself. */
  readonly commandPrefix?: readonly string[];
  /** Forwards connections to this port of the sandbox's own loopback: the egress to a proxy. */
  readonly forward?: DaemonForward;
  /** Makes the trust files of an egress with secrets, where no directory of the fleet's host is mounted. */
  readonly trust?: DaemonTrust;
  /** An address that the sandbox must not reach. The daemon listens only once it does not. */
  readonly canary?: DaemonCanary;
  /** Commands, sessions and terminals that may run at once. More is `exec_limit`. Default `EXEC_MAX`. */
  readonly execMax?: number;
}

/** The prefix of files that a fleet is writing from outside. They are hidden until they get their own name. */
export const DRAFT_PREFIX = ".sandlot-draft-";

/** Enough for any agent; each takes descriptors and memory of the daemon. */
export const EXEC_MAX = 256;

export type DaemonListen =
  | { readonly path: string }
  | { readonly fd: number }
  | { readonly host: string; readonly port: number; readonly psk?: PresharedKey };

/**
 * A key that both ends of a connection have. TLS proves to each end that the other one has it, without certificates.
 * The client sends the identity, and the server announces it as its hint: so each end knows which key is meant.
 */
export interface PresharedKey {
  /** Not secret. At most `PSK_IDENTITY_MAX_BYTES`. */
  readonly identity: string;
  /** 32 bytes, in hexadecimal digits. */
  readonly key: string;
}

export const PSK_IDENTITY_MAX_BYTES = 128;

/**
 * TLS between a fleet, its daemons and its egress proxies, on both ends. The cipher's authentication is the key alone,
 * so neither end accepts a certificate in its place. TLS 1.3 knows no such cipher suite in Node.
 */
export const PSK_TLS = {
  ciphers: "ECDHE-PSK-CHACHA20-POLY1305",
  minVersion: "TLSv1.2",
  maxVersion: "TLSv1.2",
} as const;

/** To a unix socket, or to a port with a pre-shared key. */
export type DaemonForward =
  | { readonly port: number; readonly socketPath: string }
  | {
      readonly port: number;
      readonly to: { readonly host: string; readonly port: number; readonly psk: PresharedKey };
    };

/**
 * An authority that programs of the sandbox have to trust. The daemon writes it to the directory by itself, and in a
 * bundle with the certificates that the image trusts.
 */
export interface DaemonTrust {
  readonly directory: string;
  readonly certificatePem: string;
}

/** The names of the trust files in their directory. */
export const TRUST_FILES = { authority: "ca.pem", bundle: "ca-bundle.pem" } as const;

/** Where images have the certificates that they trust. */
export const SYSTEM_BUNDLES: readonly string[] = [
  "/etc/ssl/certs/ca-certificates.crt",
  "/etc/pki/tls/certs/ca-bundle.crt",
  "/etc/ssl/ca-bundle.pem",
  "/etc/ssl/cert.pem",
];

/**
 * A listener that every network policy forbids. While the daemon reaches it, policies are not enforced yet: the daemon
 * does not listen, forwards nothing and runs nothing. It ends itself with `DAEMON_EXIT.notIsolated` when this lasts.
 */
export interface DaemonCanary {
  readonly host: string;
  readonly port: number;
  /** How long the daemon tries. Default `CANARY_TIMEOUT_MS`. */
  readonly timeoutMs?: number;
}

export const CANARY_TIMEOUT_MS = 10_000;

/** The codes with which a daemon ends itself. Its last line on stderr gives the reason. */
export const DAEMON_EXIT = {
  failed: 1,
  /** The configuration is missing or invalid. */
  invalidConfig: 2,
  /** The canary was reached: no network policy is enforced. */
  notIsolated: 3,
} as const;

/**
 * A file that the daemon must see before it answers a rebind: the workspace has then arrived in this sandbox. Otherwise
 * the answer is `wait_timeout` after `REBIND_EXPECT_MS`, and the credentials stay.
 */
export interface RebindExpectation {
  readonly path: string;
  /** The content of the file. */
  readonly nonce: string;
}

export const REBIND_EXPECT_MS = 3_000;

export interface ExecCall {
  readonly execId: string;
  /** The caller chose the id and may repeat the call with it. Otherwise the exec ends when its caller disconnects. */
  readonly repeatable: boolean;
  readonly command: string | readonly string[];
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly timeoutMs?: number;
  /** Whether bytes of stdin follow the line, even if there are none. */
  readonly hasStdin: boolean;
  /** More stdin may come later. Only for `spawn`. */
  readonly keepStdinOpen?: boolean;
  /** How many bytes of the end of each stream the result holds. Only for `exec`. */
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
  /** A regular expression for each line; with `literal`, a text. */
  readonly pattern: string;
  readonly literal?: boolean;
  readonly timeoutMs: number;
}

/** `major.minor`. A new minor adds; readers of this version cannot read a new major. */
export const PROTOCOL_VERSION = "1.0";

const [OUR_MAJOR] = PROTOCOL_VERSION.split(".");
const PATTERN = /^(\d{1,4})\.\d{1,4}$/;

/**
 * Throws `protocol_incompatible` if the peer announces another major version. A peer without a version is an older one,
 * and an invalid version says nothing: both are accepted.
 */
export function checkProtocol(peer: "daemon" | "gateway", announced: string | null | undefined): void {
  const [, major] = PATTERN.exec(announced ?? "") ?? [];
  if (major === undefined || Number(major) === Number(OUR_MAJOR)) return;
  throw new SandlotError("protocol_incompatible", { peer, theirs: announced ?? "", ours: PROTOCOL_VERSION });
}
