/** The first process of a sandbox, below which the daemon can be killed and comes back. */

import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { noNamespaceReason } from "../../../sandboxd/test/start-daemon.ts";
import { DaemonAttachment, rebindDaemon } from "../../src/sandboxd/index.ts";
import { attached, world } from "./attached.ts";
import { code } from "./expectations.ts";

const SHELLS = ["/bin/dash", "/bin/bash", "/bin/busybox"].filter((path) => existsSync(path));

/** Busybox becomes a shell by its name. */
function callable(shell: string): string {
  if (!shell.endsWith("busybox")) return shell;
  const directory = mkdtempSync(join(tmpdir(), "sandlot-busybox-"));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  symlinkSync(shell, join(directory, "sh"));
  return join(directory, "sh");
}

beforeEach((context) => {
  const reason = noNamespaceReason();
  if (reason !== null) context.skip(reason);
});

describe("kill -9 -1", () => {
  test.each(SHELLS)("restarts the daemon in the same sandbox below %s", async (shell) => {
    const { attachment, sandbox, target, daemon } = await attached({ supervised: { shell: callable(shell) } });
    await sandbox.files.write(join(daemon.workspace, "kept"), "kept");
    await sandbox.spawn("echo begun; sleep 60", { execId: "followed" });
    const running = sandbox.exec("sleep 60");
    const followed = (async () => {
      const events = [];
      for await (const event of sandbox.execs.follow("followed")) events.push(event);
      return events;
    })();
    const waiting = code(sandbox.ports.waitFor(1, { timeoutMs: 60_000 }));
    await sandbox.execs.waitForOutput("followed", "begun", { timeoutMs: 5_000 });
    expect(await sandbox.exec(["sh", "-c", "kill -9 -1; sleep 60"])).toMatchObject({
      status: "lost",
      exitCode: null,
      signal: null,
    });
    expect(await running).toMatchObject({ status: "lost", exitCode: null });
    const events = await followed;
    const received = events.reduce((sum, event) => sum + (event.type === "output" ? event.bytes.length : 0), 0);
    expect(events.at(-1)).toMatchObject({ type: "end", end: { status: "lost", stdoutBytes: received } });
    expect(await waiting).toBe("sandbox_unreachable");
    await attachment.closed;
    // The present daemon gets the requests that were not sent yet.
    expect(await sandbox.exec("echo after")).toMatchObject({ status: "completed", stdout: "after\n" });

    const again = await DaemonAttachment.open(target, world);
    expect((await again.sandbox.exec(`cat ${daemon.workspace}/kept; cat /proc/1/comm`)).stdout).toMatch(/^kept/);
    expect(await code(again.sandbox.execs.waitForOutput("followed", "x", { timeoutMs: 1 }))).toBe("exec_not_found");
    expect((await again.sandbox.exec("ps -e -o stat= | grep -c ^Z")).stdout).toBe("0\n");
    await again.close();
  });

  test("keeps the credentials of a rebind, and no token can be read inside", async () => {
    const { target, daemon, sandbox } = await attached({ supervised: true });
    const look = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'; timeout 0.2 cat /proc/1/fd/6";
    expect((await sandbox.exec(look)).stdout).not.toContain(target.token);
    const next = { generation: 8, token: "the-new-token" };
    await rebindDaemon(target, next);
    const present = { ...target, ...next };
    for (let round = 0; round < 3; round++) {
      const attachment = await DaemonAttachment.open(present, world);
      await attachment.sandbox.exec("sh -c 'kill -9 -1'; sleep 9");
      expect(await code(DaemonAttachment.open(target, world))).toBe("stale_generation");
      const again = await DaemonAttachment.open(present, world);
      const seen = (await again.sandbox.exec("cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline")).stdout;
      expect(seen).not.toContain("token");
      await Promise.all([attachment.close(), again.close()]);
    }
    // The next daemon removes a killed daemon's files in the temporary directory.
    expect(readdirSync(daemon.directory).filter((name) => name.startsWith(".sandboxd-")).length).toBeLessThan(2);
  });

  test("twice in a row is never taken for the end of the sandbox", async () => {
    const { sandbox } = await attached({ supervised: true });
    for (let round = 0; round < 8; round++) {
      expect(await sandbox.exec("kill -9 -1; sleep 60")).toMatchObject({ status: "lost" });
      expect(await sandbox.exec("echo again")).toMatchObject({ status: "completed", stdout: "again\n" });
    }
  });

  test("again and again does not outlive the first", async () => {
    const { sandbox, target } = await attached({ supervised: true });
    await sandbox.exec("setsid sh -c 'while :; do kill -9 -1; done' & sleep 60");
    const again = await DaemonAttachment.open(target, world);
    expect((await again.sandbox.exec("pgrep -fc '[w]hile'")).stdout).toBe("0\n");
    await again.close();
  });
});

describe("below the supervisor", () => {
  test("nothing else that agents type reaches the daemon", async () => {
    const { sandbox, attachment, target } = await attached({ supervised: true });
    const signals = ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "ALRM", "PIPE"];
    for (const name of signals) await sandbox.exec(`kill -${name} -1; kill -${name} 1`);
    await sandbox.exec(["pkill", "-f", "node"]);
    await sandbox.exec(["pkill", "-9", "-f", "cjs"]);
    expect((await sandbox.exec("echo alive")).stdout).toBe("alive\n");
    const again = await DaemonAttachment.open(target, world);
    expect(again.daemonPid).toBe(attachment.daemonPid);
    await again.close();
    // No debugger has opened.
    expect((await sandbox.ports.list()).filter(({ port }) => port === 9229)).toEqual([]);
  });

  test("a process without its parent is reaped", async () => {
    const { sandbox } = await attached({ supervised: true });
    await sandbox.exec("for i in $(seq 40); do (setsid sleep 0.05 &) ; done; sleep 0.3");
    expect((await sandbox.exec("ps -e -o stat= | grep -c ^Z")).stdout).toBe("0\n");
  });

  test("a daemon that ends by itself ends the sandbox", async () => {
    const { daemon, attachment } = await attached({ supervised: true, config: { orphanTimeoutMs: 2_000 } });
    await attachment.close();
    expect(await daemon.exited).toBe(0);
  });

  test("a daemon that dies repeatedly before its first use ends the sandbox", async () => {
    const { daemon, sandbox, target } = await attached({ supervised: true });
    let over = false;
    void daemon.exited.then(() => {
      over = true;
    });
    const [first = 0] = childrenOf(daemon.pid);
    const killed = new Set<number>();
    for (; !over; await sleep(5)) {
      for (const pid of childrenOf(first).filter(isDaemon)) {
        process.kill(pid, "SIGKILL");
        killed.add(pid);
      }
      expect(killed.size).toBeLessThan(10);
    }
    expect(await daemon.exited).toBe(1);
    expect(await code(sandbox.exec("true"))).toBe("sandbox_lost");
    expect(await code(DaemonAttachment.open(target, world))).toBe("sandbox_unreachable");
  });

  test("a death is reported at once, and a connection made meanwhile waits", async () => {
    const { sandbox, attachment, target } = await attached({ supervised: true });
    await sandbox.exec("true");
    const before = performance.now();
    void sandbox.exec("kill -9 $(pgrep -x sandboxd)").catch(() => {});
    await attachment.closed;
    expect(performance.now() - before).toBeLessThan(10_000);
    const again = await DaemonAttachment.open(target, world);
    expect((await again.sandbox.exec("echo back")).stdout).toBe("back\n");
    await again.close();
  });

  test("the supervisor is small", async () => {
    const { sandbox } = await attached({ supervised: true });
    const { stdout } = await sandbox.exec(["cat", "/proc/1/status"]);
    expect(Number(/VmRSS:\s+(\d+)/.exec(stdout)?.[1])).toBeLessThan(4_096);
  });
});

function isDaemon(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/comm`, "utf8") === "sandboxd\n";
  } catch {
    return false;
  }
}

function childrenOf(pid: number): number[] {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, "latin1").trim().split(" ").filter(Boolean).map(Number);
  } catch {
    return [];
  }
}
