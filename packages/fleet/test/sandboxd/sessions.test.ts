/** Persistent shells. */

import { existsSync, mkdirSync, readFileSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { SANDBOX_LIMITS } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import { attached } from "./attached.ts";
import { code, eventually, isAlive } from "./expectations.ts";

async function session(options: Parameters<typeof attached>[0] = {}) {
  const around = await attached(options);
  const { sessions } = around.sandbox;
  const { sessionId } = await sessions.open({ sessionId: "s" });
  const run = (command: string, more: Parameters<typeof sessions.exec>[2] = {}) => sessions.exec("s", command, more);
  return { ...around, sessions, sessionId, run };
}

describe("a session", () => {
  test("keeps directory, variables and functions", async () => {
    const { run, daemon } = await session();
    expect(await run('cd /usr; x=1; export Y=2; f() { echo "f $1"; }')).toEqual({
      execId: expect.any(String),
      status: "completed",
      exitCode: 0,
      signal: null,
      stdout: "",
      stderr: "",
      stdoutDroppedBytes: 0,
      stderrDroppedBytes: 0,
      durationMs: expect.any(Number),
      cwd: "/usr",
      shellEnded: false,
    });
    expect((await run("pwd; echo $x; env | grep ^Y=; f arg")).stdout).toBe("/usr\n1\nY=2\nf arg\n");
    expect((await run(`cd ${daemon.workspace}; ulimit -c`)).cwd).toBe(daemon.workspace);
  });

  test("has exact exit codes and its streams apart", async () => {
    const { run } = await session();
    expect(await run("echo out; echo err >&2; (exit 7)")).toMatchObject({
      exitCode: 7,
      stdout: "out\n",
      stderr: "err\n",
      shellEnded: false,
    });
    expect((await run("echo $?")).stdout).toBe("7\n");
    expect(await run("false")).toMatchObject({ exitCode: 1 });
    expect(await run("no-such-program")).toMatchObject({ exitCode: 127, shellEnded: false });
    expect(await run("sh -c 'kill -9 $$'")).toMatchObject({ exitCode: 137, shellEnded: false });
    expect(await run("")).toMatchObject({ exitCode: 0, stdout: "" });
    expect(await run("# nothing")).toMatchObject({ exitCode: 0 });
  });

  test("lets the output of the oldest commands go when all of it is over 64 MiB, and keeps the newest", async () => {
    const { sandbox } = await attached();
    const { sessions } = sandbox;
    const ids = ["a", "b", "c", "d"];
    // Two full rings each.
    const command = "head -c 10485760 /dev/zero; head -c 10485760 /dev/zero >&2";
    for (const sessionId of ids) {
      await sessions.open({ sessionId });
      await sessions.exec(sessionId, command, { outputMaxBytes: 10 });
    }
    const held = async (id: string) => (await sessions.output(id, { maxBytes: 10 })).stdout.totalBytes;
    expect(await code(held("a"))).toBe("exec_not_found");
    expect(await Promise.all(["b", "c", "d"].map(held))).toEqual([10_485_760, 10_485_760, 10_485_760]);
    await sessions.close("b");
    expect(await code(held("b"))).toBe("session_not_found");
  });

  test("takes whatever a shell takes", async () => {
    const { run } = await session();
    const script = "cat <<'END'\nit's \"quoted\" $HOME \\n\nEND\nfor i in 1 2\ndo echo $i\ndone";
    expect((await run(script)).stdout).toBe('it\'s "quoted" $HOME \\n\n1\n2\n');
    expect((await run(`echo ${"x".repeat(200_000)} | wc -c`)).stdout.trim()).toBe("200001");
    expect((await run("grüße=1; echo ä 💡")).stdout).toBe("ä 💡\n");
    expect(await code(run("a\0b"))).toBe("invalid_request");
  });

  test.each(["if", "echo 'open", "echo $(", ") x"])("survives the syntax error %j", async (command) => {
    const { run } = await session();
    await run("x=kept");
    const result = await run(command);
    expect(result.exitCode).not.toBe(0);
    expect(result.stderr).not.toBe("");
    expect((await run("echo $x")).stdout).toBe("kept\n");
  });

  test.each([
    "break",
    "continue",
    "return 3",
    "exec 3>&1 9>&1 8<&0",
    "exec > /dev/null 2>&1",
    "set -o noclobber",
    "set -x",
  ])("survives %j", async (command) => {
    const { run } = await session();
    await run("x=kept");
    await run(command);
    expect(await run("echo $x")).toMatchObject({ stdout: "kept\n", shellEnded: false });
  });

  test("is not fooled by output, whatever it looks like", async () => {
    const { run, daemon } = await session();
    const forged = await run("printf 's.0 0 /\\0'; printf '\\0 0 /tmp\\n\\0'; echo $?; (exit 9)");
    expect(forged).toMatchObject({ exitCode: 9, shellEnded: false });
    expect(forged.stdout).toBe("s.0 0 /\0\0 0 /tmp\n\0" + "0\n");
    // Even a record written where the shell writes its own counts for nothing: it lacks the shell's secret.
    const pipes = `${daemon.directory}/.sandboxd-*/[0-9]*`;
    const write = `timeout 0.3 sh -c "printf 'x.0 0 /tmp\\n\\0' > $p" & done`;
    const written = await run(`cd /etc; for p in ${pipes}; do ${write}; wait; (exit 9)`);
    expect(written).toMatchObject({ exitCode: 9, cwd: "/etc", shellEnded: false });
    expect(await run("cd /usr; echo real")).toMatchObject({ stdout: "real\n", cwd: "/usr" });
  });

  test("runs its commands one after the other, in order", async () => {
    const { run, sessions } = await session();
    const started = performance.now();
    const [slow, ...rest] = await Promise.all([
      run("sleep 0.4; x=0"),
      ...[1, 2, 3].map((i) => run(`x="$x"${i}; echo $x`)),
    ]);
    expect(performance.now() - started).toBeGreaterThan(390);
    expect(slow?.exitCode).toBe(0);
    expect(rest.map(({ stdout }) => stdout)).toEqual(["01\n", "012\n", "0123\n"]);
    const running = run("sleep 0.3");
    await eventually(async () => (await sessions.list())[0]?.busy === true);
    await running;
    expect(await sessions.list()).toMatchObject([{ sessionId: "s", busy: false }]);
    // The first one takes longer than the others take to arrive.
    const many = Array.from({ length: 70 }, (_, i) => code(run(i === 0 ? "sleep 2" : "true")));
    expect((await Promise.all(many)).filter((answer) => answer === "session_busy").length).toBeGreaterThan(3);
  });

  test("two share nothing but the files", async () => {
    const { run, sessions } = await session();
    await sessions.open({ sessionId: "other", cwd: "/usr", env: { Z: "other" } });
    await run("x=1; cd /etc");
    expect(await sessions.exec("other", "echo [$x] $Z $PWD")).toMatchObject({ stdout: "[] other /usr\n" });
    expect(await sessions.open({ sessionId: "other" })).toMatchObject({ sessionId: "other", cwd: "/usr" });
    const { sessionId } = await sessions.open();
    expect((await sessions.list()).map((info) => info.sessionId).sort()).toEqual(["other", "s", sessionId].sort());
    expect(await code(sessions.open({ cwd: "/no/such" }))).toBe("file_not_found");
    expect(await code(sessions.exec("never-was", "true"))).toBe("session_not_found");
  });

  test("gives a command its stdin, and nothing when there is none", async () => {
    const { run, daemon } = await session();
    expect((await run("read a; read b; echo $b $a; cat", { stdin: "1\n2\nrest" })).stdout).toBe("2 1\nrest");
    expect((await run("cat; read x || echo none")).stdout).toBe("none\n");
    expect((await run("wc -c", { stdin: new Uint8Array(300_000) })).stdout.trim()).toBe("300000");
    const left = await run(`ls -A ${daemon.directory} | grep stdin`);
    expect(left.stdout).toBe("");
  });

  test("cuts long output at the front, and takes no memory for it", async () => {
    const { run } = await session();
    const result = await run("head -c 30000000 /dev/zero | tr '\\0' x; echo END", {
      outputMaxBytes: SANDBOX_LIMITS.execOutputMaxBytes,
    });
    expect(result.stdout.endsWith("xEND\n")).toBe(true);
    expect(result.stdout.length).toBe(SANDBOX_LIMITS.execOutputMaxBytes);
    expect(result.stdoutDroppedBytes).toBe(30_000_004 - SANDBOX_LIMITS.execOutputMaxBytes);
    const short = await run("printf abc; printf defg >&2", { outputMaxBytes: 2 });
    expect(short).toMatchObject({ stdout: "bc", stderr: "fg", omitted: { stdoutBytes: 1, stderrBytes: 2 } });
  });
});

describe("the background of a session", () => {
  test("goes on between commands and keeps its output to itself", async () => {
    const { run, daemon } = await session();
    const file = join(daemon.workspace, "ticks");
    const started = await run(`(while :; do echo tick; echo tick >> ${file}; sleep 0.02; done) & echo started`);
    expect(started.stdout.startsWith("started\n") || started.stdout.startsWith("tick\n")).toBe(true);
    expect(started.durationMs).toBeLessThan(20_000);
    await eventually(() => existsSync(file) && readFileSync(file, "utf8").length > 50);
    expect((await run("echo only this")).stdout).toBe("only this\n");
    expect((await run("jobs -p | wc -l; kill %1; wait; echo done")).stdout).toContain("done\n");
  });

  test("does not stop when it prints a lot", async () => {
    const { run, daemon } = await session();
    const done = join(daemon.workspace, "done");
    await run(`(sleep 0.1; head -c 30000000 /dev/zero; touch ${done}) &`);
    await eventually(() => existsSync(done));
  });
});

describe("the end of a session's shell", () => {
  test("by exit has the code, and the next command a fresh shell in the last directory", async () => {
    const { run } = await session();
    await run("cd /usr; x=1");
    expect(await run("echo bye; exit 4")).toMatchObject({
      exitCode: 4,
      stdout: "bye\n",
      cwd: "/usr",
      shellEnded: true,
    });
    expect(await run("echo [$x] $PWD $?")).toMatchObject({ stdout: "[] /usr 0\n", shellEnded: false });
    expect(await run("exec sh -c 'echo instead; exit 6'")).toMatchObject({
      exitCode: 6,
      stdout: "instead\n",
      shellEnded: true,
    });
    expect(await run("kill -9 $$")).toMatchObject({
      status: "killed",
      exitCode: null,
      signal: "SIGKILL",
      shellEnded: true,
    });
    expect(await run("set -e; false; echo no")).toMatchObject({ exitCode: 1, stdout: "", shellEnded: true });
    expect((await run("pwd")).stdout).toBe("/usr\n");
  });

  test("when its directory is gone begins somewhere that is there", async () => {
    const { run, daemon } = await session();
    const gone = join(daemon.workspace, "gone");
    mkdirSync(gone);
    await run(`cd ${gone}`);
    rmdirSync(gone);
    await run("exit");
    expect((await run("pwd")).stdout).toBe(`${daemon.workspace}\n`);
  });

  test("by a timeout ends what the command started, not what was there before", async () => {
    const { run, daemon } = await session();
    const pids = (name: string) =>
      readFileSync(join(daemon.workspace, name), "utf8").split("\n").filter(Boolean).map(Number);
    await run(`sleep 300 > /dev/null 2>&1 & echo $! > ${daemon.workspace}/before`);
    await sleep(30);
    const result = await run(
      `echo begun; (setsid sleep 300 & echo $! >> ${daemon.workspace}/of); sh -c 'trap "" TERM; echo $$ >> ${daemon.workspace}/of; while :; do sleep 0.05; done'`,
      { timeoutMs: 500 },
    );
    expect(result).toMatchObject({ status: "timed_out", exitCode: null, stdout: "begun\n", shellEnded: true });
    expect(pids("of")).toHaveLength(2);
    expect(pids("of").filter(isAlive)).toEqual([]);
    expect(pids("before").filter(isAlive)).toHaveLength(1);
    expect((await run("echo on")).stdout).toBe("on\n");
  });

  test("by an abort rejects with its reason", async () => {
    const { run, daemon } = await session();
    const file = join(daemon.workspace, "pid");
    const controller = new AbortController();
    const running = run(`sh -c 'echo $$ > ${file}; exec sleep 300'`, { signal: controller.signal });
    await eventually(() => existsSync(file) && readFileSync(file, "utf8") !== "");
    const reason = new Error("changed my mind");
    controller.abort(reason);
    await expect(running).rejects.toBe(reason);
    await eventually(() => !isAlive(Number(readFileSync(file, "utf8"))));
    expect((await run("echo on")).stdout).toBe("on\n");
  });

  test("by removing its pipes is noticed", async () => {
    const { run, sandbox, daemon } = await session();
    await run("true");
    await sandbox.exec(`rm -rf ${daemon.directory}/.sandboxd-*`);
    expect((await run("echo x")).shellEnded).toBe(true);
    await eventually(async () => (await run("echo on").catch(() => ({ stdout: "" }))).stdout === "on\n");
  });
});

describe("closing a session", () => {
  test("ends everything in it", async () => {
    const { run, sessions, sandbox, daemon } = await session();
    const file = join(daemon.workspace, "pids");
    await run(`(setsid sleep 300 & echo $! >> ${file}); sleep 300 & echo $! >> ${file}; echo $$ >> ${file}`);
    const waiting = code(run("sleep 300"));
    await sleep(100);
    const queued = code(run("echo never"));
    await sessions.close("s");
    const pids = readFileSync(file, "utf8").split("\n").filter(Boolean).map(Number);
    expect(pids).toHaveLength(3);
    expect(pids.filter(isAlive)).toEqual([]);
    expect(await waiting).toBe("no error");
    expect(await queued).toBe("session_not_found");
    expect(await sessions.list()).toEqual([]);
    await sessions.close("s");
    expect((await sandbox.activity()).runningExecs).toBe(0);
  });

  test("an idle one is no work, a busy one is", async () => {
    const { run, sandbox } = await session();
    await run("true");
    expect((await sandbox.activity()).runningExecs).toBe(0);
    const running = run("sleep 0.5");
    await sleep(100);
    expect((await sandbox.activity()).runningExecs).toBe(1);
    await running;
    await run("sleep 300 > /dev/null 2>&1 &");
    expect((await sandbox.activity()).runningExecs).toBe(1);
  });
});
