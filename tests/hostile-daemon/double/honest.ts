/**
 * The responses of an honest server inside a sandbox, by path: the daemon's own wire, the AIO API, and a small web
 * server for previews. The double spoils these.
 */

export interface Honest {
  readonly kind: "json" | "bytes" | "frames" | "lines" | "hold" | "terminal" | "tunnel" | "upload" | "switch";
  readonly body: Buffer;
}

const RESULT = {
  execId: "e",
  status: "completed",
  exitCode: 0,
  signal: null,
  stdout: "out\n",
  stderr: "",
  stdoutDroppedBytes: 0,
  stderrDroppedBytes: 0,
  durationMs: 1,
};
const STAT = { path: "/x", kind: "file", sizeBytes: 1, mode: 420, modifiedAt: 1, version: "v" };
const SESSION = { sessionId: "s", cwd: "/", createdAt: 1, busy: false };
const TERMINAL = { terminalId: "t", command: ["sh"], columns: 80, rows: 24, createdAt: 1, attachedCount: 0 };
const EXEC = {
  execId: "e",
  command: ["a", "b"],
  status: "running",
  exitCode: null,
  pid: 1,
  startedAt: 1,
  stdoutBytes: 0,
  stderrBytes: 0,
};
const PROCESS = { pid: 1, parentPid: 0, command: "sh", state: "S", residentBytes: 1, cpuMs: 1, execId: null };
const USAGE = { memoryBytes: 1, memoryMaxBytes: null, processCount: 1, processMax: null, cpuMs: 1 };
const ACTIVITY = {
  runningExecs: 0,
  openTerminals: 0,
  previewTrafficAt: null,
  cpuShare: 0,
  lastActivityAt: 1,
  heldCount: 1,
};
const END = {
  execId: "e",
  status: "completed",
  exitCode: 0,
  signal: null,
  durationMs: 1,
  stdoutBytes: 5,
  stderrBytes: 3,
};

export function frame(type: number, offset: number, payload: Buffer, length = payload.length): Buffer {
  const header = Buffer.alloc(13);
  header.writeUInt8(type, 0);
  header.writeBigUInt64BE(BigInt(offset), 1);
  header.writeUInt32BE(length, 9);
  return Buffer.concat([header, payload]);
}

const FRAMES = Buffer.concat([
  frame(1, 0, Buffer.from("hello")),
  frame(2, 0, Buffer.from("abc")),
  frame(5, 0, Buffer.from(JSON.stringify(END))),
]);
const LINES = Buffer.from(
  [
    { type: "ready", path: "/x" },
    { type: "created", path: "/x/a" },
    { type: "modified", path: "/x/é" },
  ]
    .map((change) => `${JSON.stringify(change)}\n`)
    .join(""),
);

const OUTPUT_LINE = {
  execId: "s:1",
  status: "running",
  exitCode: null,
  stdoutOffset: 0,
  stdoutBytes: 5,
  stdoutTotalBytes: 5,
  stderrOffset: 0,
  stderrBytes: 3,
  stderrTotalBytes: 3,
};

const json = (value: unknown): Honest => ({ kind: "json", body: Buffer.from(JSON.stringify(value)) });
const aio = (data: unknown): Honest => json({ success: true, message: "", data });
const bytes = (kind: Honest["kind"], body: Buffer | string = ""): Honest => ({ kind, body: Buffer.from(body) });

const COMMAND = {
  session_id: "s",
  command_id: "c",
  status: "completed",
  stdout: "x\0complete\n",
  stderr: "",
  exit_code: 0,
  offset: 11,
  stderr_offset: 0,
};

export const HONEST: Readonly<Record<string, Honest>> = {
  "/sandlot/exec": json(RESULT),
  "/sandlot/spawn": json({ execId: "e", pid: 5 }),
  "/sandlot/execs": json([EXEC, { ...EXEC, command: "c" }]),
  "/sandlot/exec/kill": json({ found: true }),
  "/sandlot/exec/signal": json({ found: true }),
  "/sandlot/exec/stdin": json({}),
  "/sandlot/exec/follow": bytes("frames", FRAMES),
  "/sandlot/wait/port": json({}),
  "/sandlot/wait/output": json({ matched: true, stream: "stdout", line: "x" }),
  "/sandlot/files/read": bytes("bytes", "some bytes"),
  "/sandlot/files/download": bytes("bytes", "more bytes"),
  "/sandlot/files/watch": bytes("lines", LINES),
  "/sandlot/files/upload": bytes("upload"),
  "/sandlot/files/write": json({}),
  "/sandlot/files/append": json({}),
  "/sandlot/files/mkdir": json({}),
  "/sandlot/files/rename": json({}),
  "/sandlot/files/remove": json({}),
  "/sandlot/files/stat": json(STAT),
  "/sandlot/files/list": json({ entries: [STAT, STAT], truncated: false }),
  "/sandlot/files/glob": json({ paths: ["/x"], truncated: false }),
  "/sandlot/files/grep": json({ matches: [{ path: "/x", lineNumber: 1, line: "x" }], truncated: false }),
  "/sandlot/sessions": json([SESSION]),
  "/sandlot/sessions/open": json(SESSION),
  "/sandlot/sessions/exec": json({ ...RESULT, cwd: "/", shellEnded: false }),
  "/sandlot/sessions/output": bytes("bytes", `${JSON.stringify(OUTPUT_LINE)}\nhelloabc`),
  "/sandlot/sessions/close": json({ found: true }),
  "/sandlot/terminals": json([TERMINAL]),
  "/sandlot/terminals/open": json(TERMINAL),
  "/sandlot/terminals/close": json({ found: true }),
  "/sandlot/terminals/attach": bytes("terminal"),
  "/sandlot/connect": bytes("tunnel"),
  "/sandlot/hold": bytes("hold"),
  "/sandlot/rebind": json({}),
  "/sandlot/renew": json({ run: "r" }),
  "/sandlot/activity": json(ACTIVITY),
  "/sandlot/processes": json([PROCESS, PROCESS]),
  "/sandlot/ports": json([{ port: 80, address: "0.0.0.0", pid: null }]),
  "/sandlot/usage": json(USAGE),
  "/v1/sandbox": json({ home_dir: "/root", version: "1.9.3", detail: {} }),
  "/v1/bash/exec": aio(COMMAND),
  "/v1/bash/output": aio({ stdout: "out", stderr: "", offset: 3, stderr_offset: 0, command: COMMAND }),
  "/v1/bash/sessions": aio([{ session_id: "s", current_command: null }]),
  "/v1/bash/sessions/create": aio({}),
  "/v1/bash/kill": aio({}),
  "/v1/bash/write": aio({}),
  "/v1/shell/sessions/stats": aio({ active_sessions: 0 }),
  "/v1/file/write": aio({ file: "/x" }),
  "/v1/file/download": bytes("bytes", "downloaded"),
  "/v1/file/grep": aio({ matches: [{ file: "/x", line_number: 1, line_content: "x" }], truncated: false }),
  /** The content of a preview. */
  "app:http": bytes("bytes", "<h1>hello</h1>"),
  "app:websocket": bytes("switch"),
};

const OTHERWISE = aio({});

export function honestOf(path: string): Honest {
  return HONEST[path] ?? OTHERWISE;
}
