/**
 * A process started without a fork is indistinguishable from one that Node has forked: the same commands run on a
 * daemon that has the native part and on one that lacks it, and everything visible to a caller is compared.
 */

import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ExecOptions, ExecResult } from "@sandlot/contract";
import { describe, expect, onTestFinished, test } from "vitest";
import { type StartedDaemon, startDaemon } from "../../../sandboxd/test/start-daemon.ts";
import { DaemonAttachment, type DaemonSandbox } from "../../src/sandboxd/index.ts";
import { targetOf, world } from "./attached.ts";

type Command = string | readonly string[];
interface Case {
  readonly command: Command;
  readonly options?: ExecOptions;
  /** What must hold for both, beyond being the same. */
  readonly expects?: Partial<ExecResult>;
}

interface Pair {
  readonly daemons: readonly StartedDaemon[];
  /** The one that has the native part, then the one that has not. */
  readonly sandboxes: readonly DaemonSandbox[];
}

/** Both have the same files in their workspaces. */
async function startPair(): Promise<Pair> {
  const daemons = [await startDaemon(), await startDaemon({ lacks: ["koffi"] })];
  const attachments = await Promise.all(daemons.map((daemon) => DaemonAttachment.open(targetOf(daemon), world)));
  onTestFinished(() => {
    for (const attachment of attachments) attachment.close();
  });
  for (const { workspace } of daemons) fill(workspace);
  return { daemons, sandboxes: attachments.map(({ sandbox }) => sandbox) };
}

function fill(workspace: string): void {
  const put = (name: string, text: string, mode: number) => {
    writeFileSync(join(workspace, name), text);
    chmodSync(join(workspace, name), mode);
  };
  put("script", '#!/bin/sh\necho "script $*"; exit 5\n', 0o755);
  put("bare", 'echo "bare $*"\n', 0o755);
  put("lost", "#!/not/there\n", 0o755);
  put("closed", "#!/bin/sh\n", 0o644);
  put("garbage", "\u007fELF garbage", 0o755);
  mkdirSync(join(workspace, "folder"));
  mkdirSync(join(workspace, "first", "script"), { recursive: true });
  mkdirSync(join(workspace, "second"));
  put("second/script", "#!/bin/sh\necho second\n", 0o755);
}

const PATH = "/usr/local/bin:/usr/bin:/bin";
const long = (sizeBytes: number) => "x".repeat(sizeBytes);

const CASES: Readonly<Record<string, Case>> = {
  "an exit code": { command: ["/bin/sh", "-c", "exit 7"], expects: { status: "completed", exitCode: 7 } },
  "the largest exit code": { command: "exit 255", expects: { exitCode: 255 } },
  "an end by TERM": { command: "kill -TERM $$", expects: { status: "killed", signal: "SIGTERM" } },
  "an end by KILL": { command: ["/bin/sh", "-c", "kill -KILL $$"], expects: { signal: "SIGKILL" } },
  "an end by ABRT": { command: "ulimit -c 0; kill -ABRT $$", expects: { signal: "SIGABRT" } },
  "both streams": { command: "echo out; echo err >&2", expects: { stdout: "out\n", stderr: "err\n" } },
  "much output": { command: "head -c 300000 /dev/zero | tr '\\0' a | tee /dev/stderr" },
  "no input": { command: "readlink /proc/self/fd/0; wc -c", expects: { stdout: "/dev/null\n0\n" } },
  input: { command: "cat", options: { stdin: "given" }, expects: { stdout: "given" } },
  "input that nobody reads": { command: "true", options: { stdin: long(200_000) }, expects: { exitCode: 0 } },
  descriptors: { command: ["/bin/sh", "-c", "ls /proc/$$/fd"], expects: { stdout: "0\n1\n2\n" } },
  "ways of descriptors": { command: "for fd in 0 1 2; do grep flags /proc/$$/fdinfo/$fd; done" },
  "ways of descriptors with input": { command: "grep flags /proc/$$/fdinfo/0", options: { stdin: "x" } },
  signals: { command: ["/bin/grep", "^Sig[BIC]\\|^Shd", "/proc/self/status"] },
  "a broken pipe": { command: "yes | head -1; echo $PIPESTATUS", expects: { stdout: "y\n141\n" } },
  "a session and a group of its own": {
    command: 'set -- $(cat /proc/$$/stat); [ "$1" = "$5" ] && [ "$1" = "$6" ] && echo own; echo terminal "$7"',
    expects: { stdout: "own\nterminal 0\n" },
  },
  "who waits for it": { command: "cat /proc/$PPID/comm" },
  "what it may take": { command: ["/bin/cat", "/proc/self/limits"] },
  "its mask, its place in line and its marks": {
    command: "umask; nice; cat /proc/self/coredump_filter | wc -c; cat /proc/$$/oom_score_adj",
  },
  "the environment": {
    command: ["/usr/bin/env", "-0", "-u", "SANDLOT_EXEC", "-u", "TMPDIR", "-u", "HOME", "-u", "PWD"],
    options: { env: { EMPTY: "", EQUALS: "a=b=c", TWO_LINES: "a\nb", WIDE: "ünïcode 🙂", PATH } },
  },
  "a directory": { command: ["/bin/pwd"], options: { cwd: "/usr" }, expects: { stdout: "/usr\n" } },
  "a path relative to its directory": { command: ["./script", "a"], expects: { stdout: "script a\n", exitCode: 5 } },
  "the name it was called by": { command: ["sh", "-c", "tr '\\0' ' ' </proc/$$/cmdline"] },
  "a search": { command: ["true"], expects: { exitCode: 0 } },
  "a search in vain": { command: ["no-such-program"], expects: { exitCode: 127 } },
  "a search along its own path": { command: ["script"], options: { env: { PATH: "/nowhere:/" } } },
  "a search without a path": { command: ["true"], options: { env: { PATH: "" } } },
  "a search in its directory": { command: ["script", "b"], options: { env: { PATH: ".:/bin" } } },
  "a search past a directory of that name": { command: ["script"], options: { env: { PATH: "first:second" } } },
  "a program that is missing": { command: ["/not/there"], expects: { exitCode: 127 } },
  "a program that may not be run": { command: ["./closed"], expects: { exitCode: 126 } },
  "a directory as a program": { command: ["./folder"], expects: { exitCode: 126 } },
  "a script without a first line": { command: ["./bare", "c"], expects: { stdout: "bare c\n" } },
  "a script whose interpreter is missing": { command: ["./lost"] },
  "a program that is none": { command: ["./garbage"] },
  "an argument of nothing": { command: ["/usr/bin/printf", "[%s]", "", "a", ""], expects: { stdout: "[][a][]" } },
  "arguments in every script": { command: ["/usr/bin/printf", "%s|", "ü", "漢字", "🙂", "a\nb", "\\"] },
  "half of a character": { command: ["/usr/bin/printf", "%s", "a\ud800b"] },
  "a long argument": { command: ["/bin/echo", long(60_000)] },
  "a longer argument": { command: ["/bin/echo", long(120_000)] },
  "many arguments": { command: ["/bin/echo", ...Array.from({ length: 3_000 }, (_, index) => String(index))] },
  "what goes into the background": { command: "(sleep 0.2; echo late) & echo soon", expects: { exitCode: 0 } },
  "what takes too long": {
    command: "sleep 60 & sleep 60",
    options: { timeoutMs: 150 },
    expects: { status: "timed_out" },
  },
};

describe("a process started without a fork", () => {
  test("is as Node would have forked it, whatever it is", async () => {
    const { daemons, sandboxes } = await startPair();
    const [here, there] = await Promise.all(
      sandboxes.map(async (sandbox, index) => {
        const told = await mapCases(({ command, options }) => sandbox.exec(command, options));
        return seen(told, daemons[index]?.directory ?? "");
      }),
    );
    expect(here).toEqual(there);
    expect(here).toMatchObject(await mapCases(async ({ expects = {} }) => expects));
  });

  test("has a session's shell and a terminal as Node would have forked them", async () => {
    const { sandboxes } = await startPair();
    const told = await Promise.all(
      sandboxes.map(async (sandbox) => {
        await sandbox.sessions.open({ sessionId: "s", cwd: "/usr" });
        const command =
          'pwd; cd /; export KEPT=yes; echo "$0"; set -- /proc/$$/fd/*; echo $#; grep ^Sig[BI] /proc/$$/status';
        const first = await sandbox.sessions.exec("s", command);
        const second = await sandbox.sessions.exec("s", 'pwd; echo "$KEPT"; exit 3');
        const script = 'set -- $(cat /proc/$$/stat); [ "$1" = "$6" ] && tty >/dev/null && exit 9';
        const terminal = await sandbox.terminals.open({ columns: 80, rows: 24, command: ["/bin/sh", "-c", script] });
        return { first: first.stdout, second: [second.stdout, second.exitCode], terminal: await terminal.ended };
      }),
    );
    expect(told[0]).toEqual(told[1]);
    expect(told[0]).toMatchObject({ second: ["/\nyes\n", 3], terminal: { exitCode: 9, signal: null } });
  });

  test("is waited for, however many end at once", async () => {
    const { daemons, sandboxes } = await startPair();
    const [daemon, sandbox] = [daemons[0], sandboxes[0]];
    const numbers = Array.from({ length: 80 }, (_, index) => index);
    const results = await Promise.all(
      numbers.map((number) => sandbox?.exec(["/bin/sh", "-c", `echo ${number}; exit ${number}`])),
    );
    expect(results.map((result) => result?.stdout)).toEqual(numbers.map((number) => `${number}\n`));
    expect(results.map((result) => result?.exitCode)).toEqual(numbers);
    // No zombie is left. The daemon's own processes end by themselves.
    const children = () => readFileSync(`/proc/${daemon?.pid}/task/${daemon?.pid}/children`, "utf8").trim();
    await expect.poll(children).toBe("");
  });

  test("is what a daemon with the native part has, and one without has not", async () => {
    const { daemons, sandboxes } = await startPair();
    // Node does not know such a signal, and takes its end for an exit.
    const ends = await Promise.all(sandboxes.map((sandbox) => sandbox.exec(["/bin/sh", "-c", "kill -37 $$"])));
    expect(ends.map(({ status, signal }) => [status, signal])).toEqual([
      ["killed", "SIGRTMIN+3"],
      ["completed", null],
    ]);
    const hasLoaded = daemons.map(({ pid }) => readFileSync(`/proc/${pid}/maps`, "utf8").includes("koffi.node"));
    expect(hasLoaded).toEqual([true, false]);
  });
});

/** In sequence, by the cases' names. */
async function mapCases<T>(work: (each: Case) => Promise<T>): Promise<Readonly<Record<string, T>>> {
  const results: Record<string, T> = {};
  for (const [name, each] of Object.entries(CASES)) results[name] = await work(each);
  return results;
}

/** Without the parts that always differ: ids, times, pids and the daemon's paths. */
function seen(results: Readonly<Record<string, ExecResult>>, directory: string) {
  return Object.fromEntries(
    Object.entries(results).map(([name, { execId: _, durationMs: __, stdout, stderr, ...rest }]) => {
      const [out, err] = [stdout, stderr].map((text) => text.replaceAll(directory, "<directory>"));
      return [name, { ...rest, stdout: out, stderr: err }];
    }),
  );
}
