/**
 * A sandbox under limits: the refusals of its API, its results, and the stopped processes. Groups and processes are
 * real; the sandbox is a stand-in that runs its commands in the group as the daemon would.
 */

import { spawn } from "node:child_process";
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ExecResult, FollowEvent, FollowOptions, Sandbox } from "@sandlot/contract";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  COMMAND_OOM_SCORE_ADJUSTMENT,
  DiskGuard,
  DiskWatcher,
  type LimitGroup,
  limitedSandbox,
  memoryFileSystemBytes,
} from "../../../src/host/limits/index.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { LimitStage, needControlGroups } from "./stage.ts";

const MEGABYTE = 1024 * 1024;
const WORK = "/mnt/user-data/workspace";

describe("a sandbox under limits", { timeout: 60_000 }, () => {
  let stage: LimitStage;
  let group: LimitGroup;
  let place: string;
  let watcher: DiskWatcher;
  let sandbox: Sandbox;
  let guard: DiskGuard;
  let keeper: number;
  let written: string[];
  let problems: unknown[];

  beforeEach(async (context) => {
    stage = new LimitStage();
    needControlGroups(context, stage.limits);
    place = mkdtempSync(join(tmpdir(), "sandlot-limited-"));
    group = stage.group({ memoryBytes: 128 * MEGABYTE, pidsMax: 40 });
    watcher = new DiskWatcher({ world: systemWorld() });
    written = [];
    problems = [];
    keeper = stage.start(group, ["/bin/sleep", "300"]).pid ?? 0;
    // It is in every tree of the group once it has executed its program.
    const program = () => readFileSync(`/proc/${keeper}/comm`, "utf8");
    await expect.poll(program).toBe("sleep\n");
    expect(group.processes()).toEqual([keeper]);
    guard = new DiskGuard(watcher, {
      world: systemWorld(),
      ...{ group, place: () => place, diskBytes: 32 * MEGABYTE, filesMax: 100, spare: [] },
      onProblem: (error) => problems.push(error),
    });
    sandbox = limitedSandbox(standIn(), group, guard);
  });
  afterEach(async () => {
    guard?.close();
    watcher?.close();
    if (place !== undefined) rmSync(place, { recursive: true, force: true });
    await stage.close();
    expect(problems ?? []).toEqual([]);
  });

  /** Runs in the group, with the score that the daemon gives to commands. */
  function exec(command: string | readonly string[], score = COMMAND_OOM_SCORE_ADJUSTMENT): Promise<ExecResult> {
    const argv = typeof command === "string" ? ["/bin/bash", "-c", command] : command;
    const scored = ["/bin/sh", "-c", `echo ${score} >/proc/self/oom_score_adj; exec "$@"`, "sh", ...argv];
    const [file = "", ...args] = [...group.startPrefix, ...scored];
    const child = spawn(file, args, { cwd: place, stdio: ["ignore", "ignore", "pipe"] });
    let stderr = "";
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      stderr += text;
    });
    return new Promise((resolve) => {
      child.once("close", (exitCode, signal) => {
        const status = signal === null ? "completed" : "killed";
        const none = { stdout: "", stdoutDroppedBytes: 0, stderrDroppedBytes: 0, durationMs: 0 };
        resolve({ execId: "x", status, exitCode, signal, stderr, ...none });
      });
    });
  }

  function standIn(): Sandbox {
    const files = {
      write: async (path: string) => void written.push(path),
      append: async (path: string) => void written.push(path),
      mkdir: async (path: string) => void written.push(path),
      upload: async (path: string, content: AsyncIterable<Uint8Array>) => {
        const file = join(place, "uploading");
        try {
          for await (const chunk of content) appendFileSync(file, chunk);
          written.push(path);
        } finally {
          rmSync(file, { force: true });
        }
      },
      remove: async (path: string) => void written.push(`removed ${path}`),
    };
    const running = new Map<string, Promise<ExecResult>>();
    const spawn = async (command: string) => {
      const execId = `x${running.size}`;
      running.set(execId, exec(command));
      return { execId, pid: null };
    };
    const execs = {
      async *follow(execId: string, { from }: FollowOptions = {}): AsyncGenerator<FollowEvent> {
        const {
          stderr,
          stdout: _,
          stdoutDroppedBytes: __,
          stderrDroppedBytes: ___,
          ...end
        } = await running.get(execId)!;
        const offset = from?.stderr ?? 0;
        const bytes = Buffer.from(stderr).subarray(offset);
        if (bytes.length > 0) yield { type: "output", stream: "stderr", offset, bytes };
        yield { type: "end", end: { ...end, execId, stdoutBytes: 0, stderrBytes: stderr.length } };
      },
    };
    const sessions = { exec: (_: string, command: string) => exec(command) };
    const unknown = { memoryBytes: null, memoryMaxBytes: null, processCount: null, processMax: null, cpuMs: null };
    const usage = async () => unknown;
    return { id: "stand-in", exec, spawn, execs, sessions, files, usage } as unknown as Sandbox;
  }

  it("leaves everything else as it is", async () => {
    expect(sandbox.id).toBe("stand-in");
    await sandbox.files.remove("/x");
    expect(written).toEqual(["removed /x"]);
    expect((await sandbox.exec("exit 3")).stderr).toBe("");
  });

  it("says that a command was out of memory", async () => {
    const result = await sandbox.exec(["perl", "-e", 'my $x = "a" x (300 << 20)']);
    expect(result).toMatchObject({ status: "killed", signal: "SIGKILL" });
    expect(result.stderr).toBe(
      `sandlot: out of memory: the sandbox may use ${128 * MEGABYTE} bytes, and a process of it was killed\n`,
    );
    expect((await sandbox.exec("exit 1")).stderr).toBe("");
  });

  it("reports usage as the group counts it", async () => {
    const usage = await sandbox.usage();
    expect(usage).toMatchObject({ memoryMaxBytes: 128 * MEGABYTE, processMax: 40, processCount: 1 });
    expect(usage.memoryBytes).toBeGreaterThan(0);
    expect(usage.cpuMs).toBeGreaterThan(0);
  });

  it("reports it for successful commands too, in sessions and to followers, from any offset", async () => {
    const hungry = `perl -e 'my $x = "a" x (300 << 20)'`;
    const line = /sandlot: out of memory: the sandbox may use \d+ bytes, and a process of it was killed\n$/;
    const piped = await sandbox.exec(`${hungry} | cat`);
    expect(piped).toMatchObject({ status: "completed", exitCode: 0 });
    expect(piped.stderr).toMatch(line);
    expect((await sandbox.sessions.exec("s", hungry)).stderr).toMatch(line);
    const { execId } = await sandbox.spawn(`echo -n begun >&2; exec ${hungry}`);
    const { text, end } = await followed(execId, 0);
    expect(text).toMatch(/^begun\nsandlot: out of memory/);
    expect(text).toMatch(line);
    expect(end).toMatchObject({ status: "killed", signal: "SIGKILL", stderrBytes: text.length });
    for (const from of [3, "begun".length, 20, text.length])
      expect(await followed(execId, from), String(from)).toEqual({ text: text.slice(from), end });
    const fine = await sandbox.spawn("exit 0");
    expect(await followed(fine.execId, 0)).toMatchObject({ text: "", end: { exitCode: 0, stderrBytes: 0 } });
  });

  async function followed(execId: string, stderr: number) {
    let text = "";
    for await (const event of sandbox.execs.follow(execId, { from: { stderr } })) {
      if (event.type === "end") return { text, end: event.end };
      if (event.type !== "output") continue;
      expect(event.offset).toBe(stderr + text.length);
      text += Buffer.from(event.bytes).toString();
    }
    throw new Error("it never ended");
  }

  it("says that a file may not grow any more, however the command put it", async () => {
    const write = "dd if=/dev/zero of=one bs=64k count=9";
    const caught = `$SIG{XFSZ} = "IGNORE"; open F, ">one"; syswrite(F, "x" x (9 << 16)) or die for 1 .. 2`;
    for (const command of [
      `ulimit -f 100; exec ${write}`,
      `ulimit -f 100; ${write}; exit $?`,
      `ulimit -f 100; exec perl -e 'use autodie; ${caught}'; true`,
      `ulimit -f 100; exec perl -e '${caught.replace("die", "die qq($!\\n)")}'`,
    ]) {
      const { stderr } = await sandbox.exec(command);
      expect(stderr, command).toContain(`sandlot: disk_limit_exceeded: the workspace may hold ${32 * MEGABYTE} bytes`);
    }
    expect((await sandbox.exec("echo file too large >&2")).stderr).toBe("file too large\n");
  });

  it("says that there were too many processes", async () => {
    const forks = "for (1 .. 100) { my $pid = fork // die $!; if (!$pid) { sleep 1; exit } }";
    const result = await sandbox.exec(["perl", "-e", forks]);
    expect(result.stderr).toContain("sandlot: too many processes: the sandbox may have 40");
  });

  it("stops a command that fills the disk, says so, and spares the rest", async () => {
    const result = await sandbox.exec("head -c 2000M /dev/zero > big");
    expect(result).toMatchObject({ status: "killed", signal: "SIGKILL" });
    expect(result.stderr).toContain(`sandlot: disk_limit_exceeded: the workspace may hold ${32 * MEGABYTE} bytes`);
    // It is in every tree of the group once it has executed its program.
    const program = () => readFileSync(`/proc/${keeper}/comm`, "utf8");
    await expect.poll(program).toBe("sleep\n");
    await expect.poll(() => group.processes()).toEqual([keeper]);
  });

  it("spares the daemon also while it has the score of the command that it starts", async () => {
    writeFileSync(`/proc/${keeper}/oom_score_adj`, String(COMMAND_OOM_SCORE_ADJUSTMENT));
    expect(await sandbox.exec("head -c 2000M /dev/zero > big")).toMatchObject({ signal: "SIGKILL" });
    await expect.poll(() => group.processes()).toEqual([keeper]);
  });

  it("finds one that hides among those that are spared", async () => {
    const hidden = exec("for i in $(seq 1000); do head -c 4M /dev/zero > f$i; sleep 0.01; done", 200);
    expect(await hidden).toMatchObject({ signal: "SIGKILL" });
    await expect.poll(() => group.processes()).toEqual([]);
  });

  it("asks the daemon to end commands where there is no group to look into", async () => {
    const ended: string[] = [];
    const execs = {
      list: async () => [{ execId: "a" }, { execId: "b" }],
      kill: async (execId: string) => ended.push(execId) > 0,
    };
    const groupless = stage.limits.open("groupless");
    const other = new DiskGuard(watcher, {
      world: systemWorld(),
      ...{ group: { ...groupless, processes: () => null }, place: () => place, diskBytes: 1, spare: [] },
      onProblem: (error) => problems.push(error),
    });
    limitedSandbox({ ...standIn(), execs } as unknown as Sandbox, groupless, other);
    appendFileSync(join(place, "more"), "x".repeat(10_000));
    await other.budget.measure();
    expect(ended).toEqual(["a", "b"]);
    other.close();
  });

  it("changes nothing about a sandbox without counters", () => {
    const inner = standIn();
    expect(limitedSandbox(inner, { ...stage.limits.open("uncounted"), isCounted: false }, null)).toBe(inner);
  });

  it("refuses writes that do not fit, and only below the workspace", async () => {
    const { files } = sandbox;
    const big = new Uint8Array(33 * MEGABYTE);
    await watcher.look();
    for (const refused of [
      files.write(`${WORK}/a`, big),
      files.append(`${WORK}/a`, big),
      files.upload(`${WORK}/a`, chunks(33)),
    ])
      await expect(refused).rejects.toMatchObject({ code: "disk_limit_exceeded", details: { path: `${WORK}/a` } });
    expect(written).toEqual([]);
    // An admitted write that never came is forgotten when another one needs the room.
    await files.write("/tmp/a", big);
    await files.write(`${WORK}/b`, "small");
    await files.mkdir(`${WORK}/c`);
    expect(written).toEqual(["/tmp/a", `${WORK}/b`, `${WORK}/c`]);
  });

  async function* chunks(count: number): AsyncGenerator<Uint8Array> {
    for (let index = 0; index < count; index += 1) yield new Uint8Array(MEGABYTE);
  }
});

describe("file systems in memory", () => {
  it("leave half of the memory to programs, all four of them full", () => {
    expect(memoryFileSystemBytes(100, undefined)).toBe(100);
    expect(memoryFileSystemBytes(100, 1_000)).toBe(100);
    expect(memoryFileSystemBytes(200, 1_000)).toBe(125);
  });
});
