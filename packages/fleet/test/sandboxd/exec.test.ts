import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { SANDBOX_LIMITS } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import { attached } from "./attached.ts";
import { code, eventually, isAlive } from "./expectations.ts";

describe("a command", () => {
  test("runs through a shell and answers with everything about it", async () => {
    const { sandbox } = await attached();
    expect(await sandbox.exec("echo out; echo err >&2; exit 3")).toEqual({
      execId: expect.any(String),
      status: "completed",
      exitCode: 3,
      signal: null,
      stdout: "out\n",
      stderr: "err\n",
      stdoutDroppedBytes: 0,
      stderrDroppedBytes: 0,
      durationMs: expect.any(Number),
    });
  });

  test("given as a list runs without a shell", async () => {
    const { sandbox } = await attached();
    expect(await sandbox.exec(["echo", "$HOME", "a b;c"])).toMatchObject({ exitCode: 0, stdout: "$HOME a b;c\n" });
  });

  test("starts in the given directory, or in the workspace", async () => {
    const { sandbox, daemon } = await attached();
    expect((await sandbox.exec("pwd")).stdout).toBe(`${daemon.workspace}\n`);
    expect((await sandbox.exec("pwd", { cwd: "/usr" })).stdout).toBe("/usr\n");
  });

  test("has the sandbox's environment and its own, and nothing of the daemon's", async () => {
    const { sandbox } = await attached({
      config: { environment: { FROM_SANDBOX: "1", BOTH: "sandbox" } },
      environment: { SECRET_OF_THE_DAEMON: "x" },
    });
    const { stdout } = await sandbox.exec(["env"], { env: { OWN: "2", BOTH: "own", EMPTY: "" } });
    const lines = stdout.trim().split("\n");
    expect(lines).toEqual(expect.arrayContaining(["FROM_SANDBOX=1", "OWN=2", "BOTH=own", "EMPTY="]));
    expect(stdout).not.toContain("SECRET_OF_THE_DAEMON");
    expect(stdout).not.toContain("the-token");
  });

  test("reads no startup files, whatever its stdin is", async () => {
    const { sandbox, daemon } = await attached();
    for (const name of [".bashrc", ".profile", ".bash_profile", ".bash_login"])
      writeFileSync(join(daemon.directory, name), "echo STARTUP\n");
    expect((await sandbox.exec("echo $HOME")).stdout).toBe(`${daemon.directory}\n`);
    expect((await sandbox.exec("cat", { stdin: "in" })).stdout).toBe("in");
  });

  test("takes text, bytes and nothing on stdin", async () => {
    const { sandbox } = await attached();
    const bytes = Uint8Array.from({ length: 300_000 }, (_, i) => (i * 7) % 256);
    expect((await sandbox.exec("cat", { stdin: "grüße\n" })).stdout).toBe("grüße\n");
    expect((await sandbox.exec("cat", { stdin: "" })).stdout).toBe("");
    expect((await sandbox.exec("wc -c", { stdin: bytes })).stdout.trim()).toBe("300000");
    expect((await sandbox.exec("cat")).stdout).toBe("");
    // A command that does not read it is no problem.
    expect(await sandbox.exec("exit 4", { stdin: bytes })).toMatchObject({ exitCode: 4 });
  });

  test("can open its streams by name", async () => {
    const { sandbox } = await attached();
    const result = await sandbox.exec("cat /dev/stdin > /dev/stdout; echo e > /dev/stderr; echo t | tee /dev/stderr", {
      stdin: "in\n",
    });
    expect(result).toMatchObject({ exitCode: 0, stdout: "in\nt\n", stderr: "e\nt\n" });
  });

  test("that cannot be started is a result as a shell gives it", async () => {
    const { sandbox, daemon } = await attached();
    writeFileSync(join(daemon.workspace, "plain"), "x");
    expect(await sandbox.exec(["no-such-program"])).toMatchObject({ status: "completed", exitCode: 127 });
    expect(await sandbox.exec([""])).toMatchObject({ exitCode: 127 });
    expect(await sandbox.exec([join(daemon.workspace, "plain")])).toMatchObject({ exitCode: 126 });
    const many = Array.from({ length: 40 }, () => "x".repeat(100_000));
    const tooLong = await sandbox.exec(["/bin/true", ...many]);
    expect(tooLong).toMatchObject({ exitCode: 126, stderr: "/bin/true: Argument list too long\n" });
    expect((await sandbox.exec("no-such-program")).exitCode).toBe(127);
  });

  test("that ends by a signal says which", async () => {
    const { sandbox } = await attached();
    const killed = { status: "killed", exitCode: null };
    expect(await sandbox.exec("echo before; kill -9 $$")).toMatchObject({
      ...killed,
      signal: "SIGKILL",
      stdout: "before\n",
    });
    expect(await sandbox.exec("kill -TERM $$")).toMatchObject({ ...killed, signal: "SIGTERM" });
  });

  test("that is malformed is refused with its field", async () => {
    const { sandbox, daemon } = await attached();
    const refusal = (command: string | string[], options = {}) => code(sandbox.exec(command, options));
    expect(await refusal([])).toBe("invalid_request");
    expect(await refusal("a\0b")).toBe("invalid_request");
    expect(await refusal("true", { env: { "A-B": "1" } })).toBe("invalid_request");
    expect(await refusal("true", { env: { A: "\0" } })).toBe("invalid_request");
    expect(await refusal("true", { timeoutMs: -1 })).toBe("invalid_request");
    expect(await refusal("true", { execId: "" })).toBe("invalid_request");
    expect(await refusal("true", { execId: "x".repeat(257) })).toBe("invalid_request");
    expect(await refusal(`: ${"x".repeat(140_000)}`)).toBe("invalid_request");
    expect(await refusal("true", { cwd: "relative" })).toBe("invalid_path");
    expect(await refusal("true", { cwd: join(daemon.workspace, "missing") })).toBe("file_not_found");
    expect(await refusal("true", { cwd: "/etc/passwd" })).toBe("not_a_directory");
    expect((await sandbox.exec("echo still here")).stdout).toBe("still here\n");
  });

  test("many at once keep their outputs apart", async () => {
    const { sandbox } = await attached();
    const results = await Promise.all(
      Array.from({ length: 60 }, (_, i) => sandbox.exec(`echo ${i}; echo e${i} >&2; sleep 0.05; echo ${i}`)),
    );
    for (const [i, { stdout, stderr }] of results.entries()) {
      expect(stdout).toBe(`${i}\n${i}\n`);
      expect(stderr).toBe(`e${i}\n`);
    }
  });

  test("keeps its output apart also when the daemon learns of everything at once", async () => {
    const { sandbox, daemon } = await attached();
    const wave = (name: string) =>
      Array.from({ length: 40 }, async (_, i) => {
        const { stdout, stderr } = await sandbox.exec(`echo ${name}${i}; echo e${i} >&2; sleep 0.15; echo ${name}${i}`);
        return [stdout, stderr, `${name}${i}\n${name}${i}\n`, `e${i}\n`];
      });
    for (let round = 0; round < 3; round++) {
      const first = wave("first");
      await sleep(100);
      process.kill(daemon.pid, "SIGSTOP");
      const second = wave("second");
      // All of the first end without a follower.
      await sleep(700);
      process.kill(daemon.pid, "SIGCONT");
      const results = await Promise.all([...first, ...second]);
      for (const [stdout, stderr, wantedOut, wantedError] of results)
        expect([stdout, stderr]).toEqual([wantedOut, wantedError]);
    }
  });

  test("is what the kernel takes first when memory runs out, in every kind of shell", async () => {
    const { sandbox } = await attached();
    const look = "sleep 0.05; cat /proc/self/oom_score_adj";
    expect((await sandbox.exec(look)).stdout).toBe("1000\n");
    await sandbox.sessions.open({ sessionId: "s" });
    expect((await sandbox.sessions.exec("s", look)).stdout).toBe("1000\n");
    const terminal = await sandbox.terminals.open({ command: ["sh", "-c", look], columns: 80, rows: 24 });
    let shown = "";
    for await (const { bytes } of terminal.output) shown += Buffer.from(bytes).toString();
    expect(shown).toBe("1000\r\n");
  });

  test("is that from its first instruction, and the daemon is not", async () => {
    const { sandbox, daemon } = await attached();
    const own = () => readFileSync(`/proc/${daemon.pid}/oom_score_adj`, "latin1");
    const before = own();
    const looks = Array.from({ length: 200 }, () => sandbox.exec(["/bin/cat", "/proc/self/oom_score_adj"]));
    const scores = new Set((await Promise.all(looks)).map(({ stdout }) => stdout));
    expect([...scores, own()]).toEqual(["1000\n", before]);
  });

  test("has what the sandbox puts before it, in every kind of shell", async () => {
    const prefix = ["/bin/sh", "-c", 'ulimit -n 99; exec "$@"', "sh"];
    const { sandbox } = await attached({ config: { commandPrefix: prefix } });
    const look = "ulimit -n";
    expect((await sandbox.exec(look)).stdout).toBe("99\n");
    expect(await sandbox.exec(["sh", "-c", `${look}; exit 5`])).toMatchObject({ stdout: "99\n", exitCode: 5 });
    expect(await sandbox.exec(["no-such-program"])).toMatchObject({ exitCode: 127 });
    await sandbox.sessions.open({ sessionId: "s" });
    expect((await sandbox.sessions.exec("s", look)).stdout).toBe("99\n");
    const terminal = await sandbox.terminals.open({ command: ["sh", "-c", look], columns: 80, rows: 24 });
    let shown = "";
    for await (const { bytes } of terminal.output) shown += Buffer.from(bytes).toString();
    expect(shown).toBe("99\r\n");
  });

  test("gets nothing of the daemon's but its streams", async () => {
    const { sandbox } = await attached();
    const result = await sandbox.exec(["sh", "-c", "ls /proc/self/fd"], { stdin: "" });
    // The fourth is the directory that ls reads.
    expect(result.stdout).toBe("0\n1\n2\n3\n");
  });

  test("works without mkfifo", async () => {
    const { sandbox } = await attached({ environment: { PATH: "/nowhere" } });
    const results = await Promise.all(
      Array.from({ length: 20 }, () =>
        sandbox.exec("echo out; echo err >&2; cat; head -c 200000 /dev/zero", { stdin: "in" }),
      ),
    );
    for (const { stdout, stderr } of results) {
      expect(stdout.length).toBe("out\nin".length + 200_000);
      expect(stderr).toBe("err\n");
    }
    expect((await sandbox.exec("sleep 60 & echo started")).stdout).toBe("started\n");
  });

  test("works when its pipes were deleted", async () => {
    const { sandbox, daemon } = await attached();
    await sandbox.exec("true");
    await sandbox.exec(`rm -rf ${daemon.directory}/.sandboxd-*`);
    for (let i = 0; i < 20; i++) {
      expect(await sandbox.exec("echo out; echo err >&2; cat", { stdin: "in" })).toMatchObject({
        stdout: "out\nin",
        stderr: "err\n",
      });
    }
  });
});

describe("output", () => {
  test("larger than the ring is cut at the front and counted, and takes no memory", async () => {
    const { sandbox, daemon } = await attached();
    const total = 300 * 1024 * 1024;
    const result = await sandbox.exec(`head -c ${total} /dev/zero | tr '\\0' 'x'; echo END`, {
      outputMaxBytes: SANDBOX_LIMITS.execOutputMaxBytes,
    });
    expect(result.stdout.endsWith("xEND\n")).toBe(true);
    expect(result.stdout.length).toBe(SANDBOX_LIMITS.execOutputMaxBytes);
    expect(result.stdoutDroppedBytes).toBe(total + 4 - SANDBOX_LIMITS.execOutputMaxBytes);
    const peakKb = Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${daemon.pid}/status`, "utf8"))?.[1]);
    expect(peakKb / 1024).toBeLessThan(250);
  });

  test("that begins in the middle of a character begins with the next one", async () => {
    const { sandbox } = await attached();
    const result = await sandbox.exec(`yes ä | head -c 18000000 | tr -d '\\n'; printf x`, {
      outputMaxBytes: SANDBOX_LIMITS.execOutputMaxBytes,
    });
    expect(result.stdout).not.toContain("\ufffd");
    const bytes = Buffer.byteLength(result.stdout);
    expect(bytes + result.stdoutDroppedBytes).toBe(Buffer.byteLength("ä") * 6_000_000 + 1);
  });

  test("of bytes that are no text is readable text", async () => {
    const { sandbox } = await attached();
    expect((await sandbox.exec("printf '\\377a'")).stdout).toBe("\ufffda");
  });
});

describe("the background", () => {
  test("a server returns at once and goes on between calls", async () => {
    const { sandbox, daemon } = await attached();
    const file = join(daemon.workspace, "ticks");
    const before = performance.now();
    const started = await sandbox.exec(`(while true; do echo tick >> ${file}; sleep 0.02; done) & echo started $!`);
    expect(performance.now() - before).toBeLessThan(20_000);
    expect(started.stdout).toMatch(/^started \d+\n$/);
    const lines = () => (existsSync(file) ? readFileSync(file, "utf8").split("\n").length : 0);
    await eventually(() => lines() > 5);
    const seen = lines();
    await sandbox.exec("true");
    await eventually(() => lines() > seen + 3);
    expect((await sandbox.activity()).runningExecs).toBe(1);
  });

  test("does not stop when it prints a lot after its command has ended", async () => {
    const { sandbox, daemon } = await attached();
    const done = join(daemon.workspace, "done");
    await sandbox.exec(`(sleep 0.1; head -c 30000000 /dev/zero; touch ${done}) &`);
    await eventually(() => existsSync(done));
  });

  test("leaves no zombies", async () => {
    const { sandbox, daemon } = await attached();
    for (let i = 0; i < 10; i++) await sandbox.exec("(sleep 0.01 &) ; sleep 0.01 & exit 0");
    await sleep(100);
    const { stdout } = await sandbox.exec(`ps -o stat= --ppid ${daemon.pid}`);
    expect(stdout.split("\n").filter((line) => line.startsWith("Z"))).toEqual([]);
  });
});

describe("the end of a process tree", () => {
  /** One process for every way to escape: a child, one forked twice, one in its own session, one that ignores TERM. */
  const tree = (file: string) => `
    note() { echo $1 >> ${file}; }
    sleep 300 & note $!
    (setsid sleep 300 & echo $! >> ${file}) &
    ( (setsid sh -c 'echo $$ >> ${file}; exec sleep 300' < /dev/null > /dev/null 2>&1 &) & )
    sh -c 'trap "" TERM; echo $$ >> ${file}; while true; do sleep 0.05; done' &
    nohup sleep 300 > /dev/null 2>&1 & note $!
    note $$
    wait`;
  const pidsIn = (file: string) =>
    existsSync(file) ? readFileSync(file, "utf8").split("\n").filter(Boolean).map(Number) : [];

  test("a timeout ends all of it", async () => {
    const { sandbox, daemon } = await attached();
    const file = join(daemon.workspace, "pids");
    const result = await sandbox.exec(`echo begun; ${tree(file)}`, { timeoutMs: 600 });
    expect(result).toMatchObject({ status: "timed_out", exitCode: null, stdout: "begun\n" });
    expect(result.signal).toMatch(/^SIG(TERM|KILL)$/);
    const pids = pidsIn(file);
    expect(pids.length).toBe(6);
    expect(pids.filter(isAlive)).toEqual([]);
  });

  test("a kill ends all of it, also when only the background is left", async () => {
    const { sandbox, daemon } = await attached();
    const file = join(daemon.workspace, "pids");
    await sandbox.spawn(tree(file), { execId: "tree" });
    await eventually(() => pidsIn(file).length === 6);
    expect(await sandbox.execs.kill("tree")).toBe(true);
    expect(pidsIn(file).filter(isAlive)).toEqual([]);
    const again = await sandbox.exec(tree(file), { execId: "tree" });
    expect(again).toMatchObject({ status: "killed", exitCode: null });

    const left = join(daemon.workspace, "left");
    await sandbox.exec(`setsid sleep 300 > /dev/null 2>&1 & echo $! > ${left}`, { execId: "left" });
    await eventually(() => pidsIn(left).length === 1);
    expect(pidsIn(left).filter(isAlive)).toHaveLength(1);
    await sandbox.execs.kill("left");
    expect(pidsIn(left).filter(isAlive)).toEqual([]);
    expect(await sandbox.execs.kill("never-was")).toBe(false);
  });

  test("an abort ends it and rejects with the signal's reason", async () => {
    const { sandbox, daemon } = await attached();
    const file = join(daemon.workspace, "pids");
    const controller = new AbortController();
    const running = sandbox.exec(tree(file), { signal: controller.signal });
    await eventually(() => pidsIn(file).length === 6);
    const reason = new Error("changed my mind");
    controller.abort(reason);
    await expect(running).rejects.toBe(reason);
    await eventually(() => pidsIn(file).every((pid) => !isAlive(pid)));
    await expect(sandbox.exec("true", { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
  });

  test("a timeout leaves other commands and their background alone", async () => {
    const { sandbox, daemon } = await attached();
    const file = join(daemon.workspace, "other");
    await sandbox.exec(`setsid sleep 300 > /dev/null 2>&1 & echo $! > ${file}; sleep 300 & echo $! >> ${file}`);
    const other = sandbox.exec("sleep 0.8; echo fine");
    await sandbox.exec("sleep 300", { timeoutMs: 100 });
    expect(await other).toMatchObject({ stdout: "fine\n" });
    expect(pidsIn(file).filter(isAlive)).toHaveLength(2);
  });

  test("a timeout of 0 is none, and a command that handles TERM may tidy up", async () => {
    const { sandbox } = await attached();
    expect(await sandbox.exec("sleep 0.2; echo done", { timeoutMs: 0 })).toMatchObject({ stdout: "done\n" });
    const result = await sandbox.exec("trap 'echo tidy; exit 0' TERM; while true; do sleep 0.01; done", {
      timeoutMs: 150,
    });
    expect(result).toMatchObject({ status: "timed_out", exitCode: null, signal: "SIGTERM", stdout: "tidy\n" });
  });
});
