import { existsSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { noNamespaceReason } from "../../../sandboxd/test/start-daemon.ts";
import {
  connectAhead,
  DaemonAttachment,
  type DaemonSandbox,
  readActivity,
  rebindDaemon,
  renewDaemon,
} from "../../src/sandboxd/index.ts";
import { attached, targetOf, world } from "./attached.ts";
import { code, eventually } from "./expectations.ts";

describe("activity", () => {
  test("counts what runs, in front and in the background, and asking changes nothing", async () => {
    const { sandbox, target } = await attached();
    const start = await sandbox.activity();
    expect(start).toMatchObject({ runningExecs: 0, openTerminals: 0, previewTrafficAt: null });
    await sleep(20);
    expect((await readActivity(target)).lastActivityAt).toBe(start.lastActivityAt);
    await sandbox.exec("setsid sleep 60 > /dev/null 2>&1 &");
    const front = sandbox.exec("sleep 0.6");
    await sleep(100);
    expect((await sandbox.activity()).runningExecs).toBe(2);
    await front;
    const end = await sandbox.activity();
    expect(end.runningExecs).toBe(1);
    expect(end.lastActivityAt).toBeGreaterThan(start.lastActivityAt);
  });

  test("measures the processor", async () => {
    const { sandbox } = await attached();
    const idle = await sandbox.activity();
    await sandbox.exec("(while :; do :; done) > /dev/null 2>&1 &", { execId: "busy" });
    await sandbox.activity();
    await sleep(700);
    const busy = await sandbox.activity();
    expect(idle.cpuShare).toBeLessThan(0.2);
    // The machine may be busy with other things, too.
    expect(busy.cpuShare).toBeGreaterThan(0.05);
    const [loop] = await sandbox.processes();
    expect(loop).toMatchObject({ execId: expect.any(String), state: expect.stringMatching(/^[RS]$/) });
    expect(loop?.cpuMs).toBeGreaterThan(0);
  });

  test("shows the control group where there is one", async () => {
    const { sandbox } = await attached();
    const usage = await sandbox.usage();
    for (const value of Object.values(usage)) expect(value === null || value >= 0).toBe(true);
  });
});

describe("the attachment", () => {
  test("hears of the daemon's death at once, and calls then answer sandbox_lost", async () => {
    const { daemon, attachment, sandbox } = await attached();
    const running = sandbox.exec("sleep 60");
    const answer = code(running);
    await sandbox.exec("true");
    const before = performance.now();
    process.kill(daemon.pid, "SIGKILL");
    await attachment.closed;
    expect(performance.now() - before).toBeLessThan(10_000);
    expect(await answer).toBe("sandbox_lost");
    expect(await code(sandbox.exec("true"))).toBe("sandbox_lost");
    expect(await code(sandbox.files.read("/etc/passwd"))).toBe("sandbox_lost");
    expect(await code(DaemonAttachment.open(targetOf(daemon), world))).toBe("sandbox_unreachable");
  });

  test("needs the present generation and token", async () => {
    const { target } = await attached();
    const open = (other: object) => code(DaemonAttachment.open({ ...target, ...other }, world));
    expect(await open({ generation: 6 })).toBe("stale_generation");
    expect(await open({ token: "another" })).toBe("stale_generation");
    expect(await open({ sandboxId: "another" })).toBe("stale_generation");
    expect(await open({ address: { path: "/nowhere/s" } })).toBe("sandbox_unreachable");
    expect(await open({ address: { path: `/tmp/${"x".repeat(100)}` } })).toBe("internal");
  });

  test("of an older generation is stale after a rebind, which may be repeated", async () => {
    const { target, sandbox, attachment } = await attached();
    const next = { generation: 8, token: "new-token" };
    await rebindDaemon(target, next);
    await attachment.closed;
    expect(await code(sandbox.exec("true"))).toBe("stale_generation");
    expect(await code(DaemonAttachment.open(target, world))).toBe("stale_generation");
    await rebindDaemon(target, next);
    expect(await code(rebindDaemon(target, { generation: 9, token: "other" }))).toBe("stale_generation");
    expect(await code(rebindDaemon({ ...target, token: "wrong" }, next))).toBe("stale_generation");
    const present = await DaemonAttachment.open({ ...target, ...next }, world);
    expect((await present.sandbox.exec("echo hi")).stdout).toBe("hi\n");
    expect(present.sandbox.generation).toBe(8);
    await present.close();
  });

  test("is bound and held in one step, on connections that were there before", async () => {
    const { daemon, attachment, target } = await attached();
    const ahead = await connectAhead(target);
    const next = { ...target, generation: target.generation + 1, token: "next" };
    const bound = await DaemonAttachment.rebind(target, next, world, undefined, { pool: ahead });
    await attachment.closed;
    expect((await bound.sandbox.exec("echo bound")).stdout).toBe("bound\n");
    // A repeated rebind means the same, and holders go on.
    const again = await DaemonAttachment.rebind(target, next, world);
    expect([bound.isOpen, again.isOpen, again.daemonPid]).toEqual([true, true, bound.daemonPid]);
    expect(await code(DaemonAttachment.rebind({ ...target, token: "wrong" }, next, world))).toBe("stale_generation");
    process.kill(daemon.pid, "SIGKILL");
    await Promise.all([bound.closed, again.closed]);
    expect([bound.isOpen, again.isOpen]).toEqual([false, false]);
  });
});

describe("an orphan", () => {
  test("ends itself and leaves nothing", async () => {
    const { daemon, attachment } = await attached({ config: { orphanTimeoutMs: 400 } });
    await sleep(800);
    expect(daemon.process.exitCode).toBeNull();
    await attachment.close();
    expect(await daemon.exited).toBe(0);
    expect(existsSync(daemon.socketPath)).toBe(false);
  });

  test("lives while it is renewed or something runs", async () => {
    const { daemon, attachment, sandbox, target } = await attached({ config: { orphanTimeoutMs: 400 } });
    await sandbox.exec("setsid sleep 1.6 > /dev/null 2>&1 &");
    await attachment.close();
    await sleep(900);
    expect(daemon.process.exitCode).toBeNull();
    for (let i = 0; i < 12; i++) {
      await renewDaemon(target);
      await sleep(100);
    }
    expect(daemon.process.exitCode).toBeNull();
    expect(await daemon.exited).toBe(0);
  });
});

describe("commands as agents type them", () => {
  test("does not reach the daemon", async (context) => {
    const reason = noNamespaceReason();
    if (reason !== null) return context.skip(reason);
    const { sandbox } = await attached({ ownPidNamespace: true });
    // Whatever name Node gives itself, this one is called node.
    await sandbox.exec("cp /bin/sleep ./node");
    for (const command of ["pkill node", "killall -9 node", "pkill -f node", "pkill -9 -f ^/.*node"]) {
      await sandbox.exec("./node 60 & $PWD/node 60 &");
      // The shell is done before its child gets this name.
      await eventually(async () => (await sandbox.exec(["pgrep", "-cx", "node"])).stdout === "2\n");
      expect([command, await sandbox.exec(command.split(" "))]).toMatchObject([command, { exitCode: 0, stderr: "" }]);
      expect((await sandbox.exec("echo alive")).stdout).toBe("alive\n");
      await sandbox.exec("killall -q -9 -w node");
    }
    // The names of Node's threads are no way in either.
    await sandbox.exec("pkill -9 MainThread; pkill -9 -f cjs; killall -9 -q MainThread libuv-worker");
    expect((await sandbox.exec("echo alive")).stdout).toBe("alive\n");
  });

  test("ends with its exec in a pid namespace of its own, even without environment, session and parent", async (context) => {
    const reason = noNamespaceReason();
    if (reason !== null) return context.skip(reason);
    const { sandbox } = await attached({ ownPidNamespace: true, config: { ownsPidNamespace: true } });
    await sandbox.exec("(env -i setsid sleep 77 > /dev/null 2>&1 &) ; sleep 30", { timeoutMs: 400 });
    await eventually(async () => (await sandbox.exec(["pgrep", "-x", "sleep"])).stdout === "");
    // Also beside others, which stay: a server, a shell, a leftover of an earlier command.
    await sandbox.sessions.open({ sessionId: "shell" });
    await sandbox.sessions.exec("shell", "(env -i setsid sleep 71 > /dev/null 2>&1 &)");
    await sandbox.exec("(env -i setsid sleep 72 > /dev/null 2>&1 &)");
    const server = await sandbox.spawn("(env -i setsid sleep 73 &) ; sleep 74");
    await sandbox.exec("(env -i setsid sleep 77 > /dev/null 2>&1 &) ; sleep 30", { timeoutMs: 400 });
    expect(await sleeping(sandbox)).toEqual(["71", "72", "73", "74"]);
    await sandbox.execs.kill(server.execId);
    expect(await sleeping(sandbox)).toEqual(["71", "72"]);
    await sandbox.sessions.close("shell");
    expect(await sleeping(sandbox)).toEqual(["72"]);
  });

  test("escapes the end of its exec only by hiding in every way at once, and then shows itself in the list", async (context) => {
    const reason = noNamespaceReason();
    if (reason !== null) return context.skip(reason);
    const { sandbox } = await attached({ ownPidNamespace: true, config: { ownsPidNamespace: true } });
    const other = await sandbox.spawn("sleep 90");
    const plain = (seconds: number) => `sh -c 'echo 0x33 > /proc/self/coredump_filter; exec sleep ${seconds}'`;
    const hides = (how: string, seconds: number) => `(${how} ${plain(seconds)} > /dev/null 2>&1 &)`;
    const waits = "sleep 30";
    // Another tag alone hides no process: environment, session or parent still identify it.
    const found = [hides("", 91), hides("setsid", 92), `env -i ${plain(93)} > /dev/null 2>&1 &`, hides("env -i", 94)];
    await sandbox.exec([...found, waits].join("\n"), { timeoutMs: 800 });
    expect(await sleeping(sandbox)).toEqual(["90"]);
    await sandbox.exec(`${hides("env -i setsid", 95)}\n${waits}`, { timeoutMs: 800 });
    expect(await sleeping(sandbox)).toEqual(["90", "95"]);
    const hidden = (await sandbox.processes()).filter(({ command }) => command === "sleep 95");
    expect(hidden).toMatchObject([{ execId: null }]);
    await sandbox.execs.kill(other.execId);
    // A running process keeps the sandbox from being idle, whatever its owner.
    expect(await sleeping(sandbox)).toEqual(["95"]);
    expect((await sandbox.activity()).runningExecs).toBe(1);
    await sandbox.exec(["pkill", "-x", "sleep"]);
    await eventually(async () => (await sandbox.activity()).runningExecs === 0);
  });
});

/** The sleeping processes, by their duration. */
async function sleeping(sandbox: Pick<DaemonSandbox, "exec">): Promise<readonly string[]> {
  const { stdout } = await sandbox.exec(["pgrep", "-ax", "sleep"]);
  return [...stdout.matchAll(/sleep (\d+)$/gm)].map(([, seconds]) => seconds ?? "").sort();
}
