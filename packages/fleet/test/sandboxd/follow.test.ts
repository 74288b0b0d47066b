import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type FollowEvent, type FollowOptions, SANDBOX_LIMITS } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import { DaemonAttachment, type DaemonSandbox } from "../../src/sandboxd/index.ts";
import { attached, world } from "./attached.ts";
import { code, eventually, isAlive } from "./expectations.ts";

describe("an exec id", () => {
  test("is one run, while it runs and afterwards", async () => {
    const { sandbox, daemon } = await attached();
    const file = join(daemon.workspace, "runs");
    const call = () =>
      sandbox.exec(`echo run >> ${file}; sleep 0.3; echo out`, { execId: "a", env: { B: "1", A: "2" } });
    const [first, second] = await Promise.all([call(), call()]);
    expect(second).toEqual(first);
    expect(
      await sandbox.exec(`echo run >> ${file}; sleep 0.3; echo out`, { execId: "a", env: { A: "2", B: "1" } }),
    ).toEqual(first);
    expect(readFileSync(file, "utf8")).toBe("run\n");
  });

  test("used for something else is a conflict", async () => {
    const { sandbox } = await attached();
    await sandbox.exec("cat", { execId: "a", stdin: "x" });
    expect((await sandbox.exec("cat", { execId: "a", stdin: "x" })).stdout).toBe("x");
    expect(await code(sandbox.exec("cat", { execId: "a", stdin: "y" }))).toBe("exec_conflict");
    expect(await code(sandbox.exec("cat", { execId: "a" }))).toBe("exec_conflict");
    expect(await code(sandbox.exec("true", { execId: "a" }))).toBe("exec_conflict");
    expect(await code(sandbox.exec("cat", { execId: "a", stdin: "x", cwd: "/" }))).toBe("exec_conflict");
  });

  test("that the caller chose goes on without him; another ends with him", async () => {
    const { daemon, target } = await attached();
    const guest = await DaemonAttachment.open(target, world);
    const file = (name: string) => join(daemon.workspace, name);
    const named = code(guest.sandbox.exec(`echo $$ > ${file("named")}; sleep 0.5; echo done`, { execId: "named" }));
    const unnamed = code(guest.sandbox.exec(`echo $$ > ${file("unnamed")}; sleep 60`));
    await eventually(() => existsSync(file("named")) && existsSync(file("unnamed")));
    await guest.close();
    expect(await named).toBe("sandbox_unreachable");
    expect(await unnamed).toBe("sandbox_unreachable");
    await eventually(() => !isAlive(Number(readFileSync(file("unnamed"), "utf8"))));

    const again = await DaemonAttachment.open(target, world);
    const result = await again.sandbox.exec(`echo $$ > ${file("named")}; sleep 0.5; echo done`, { execId: "named" });
    expect(result).toMatchObject({ status: "completed", stdout: "done\n" });
    await again.close();
  });
});

describe("a spawned command", () => {
  test("is followed as it prints, to its end", async () => {
    const { sandbox } = await attached();
    const { execId, pid } = await sandbox.spawn("echo one; sleep 0.2; echo two >&2; exit 5");
    expect(pid).toBeGreaterThan(0);
    const events = await collect(sandbox, execId);
    expect(text(events, "stdout")).toBe("one\n");
    expect(text(events, "stderr")).toBe("two\n");
    expect(events.at(-1)).toMatchObject({
      type: "end",
      end: { execId, status: "completed", exitCode: 5, stdoutBytes: 4, stderrBytes: 4 },
    });
    expect(await code(collect(sandbox, "never-was"))).toBe("exec_not_found");
  });

  test("is followed from an offset, so that a returning follower misses nothing", async () => {
    const { sandbox } = await attached();
    const { execId } = await sandbox.spawn("for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.05; done");
    let seen = "";
    for await (const event of sandbox.execs.follow(execId)) {
      if (event.type === "output") seen += Buffer.from(event.bytes).toString();
      if (seen.length >= 14) break;
    }
    const rest = await collect(sandbox, execId, { from: { stdout: seen.length } });
    expect(seen + text(rest, "stdout")).toBe([1, 2, 3, 4, 5, 6, 7, 8].map((i) => `line ${i}\n`).join(""));
    expect(text(await collect(sandbox, execId, { from: { stdout: 49 } }), "stdout")).toBe("line 8\n");
  });

  test("gives a late follower the exact range that is no longer held", async () => {
    const { sandbox } = await attached();
    const total = SANDBOX_LIMITS.execOutputMaxBytes + 1_000_000;
    const { execId } = await sandbox.spawn(`head -c ${total} /dev/zero | tr '\\0' y`);
    await sandbox.exec("true");
    await collect(sandbox, execId);
    const events = await collect(sandbox, execId, { from: { stdout: 1_000 } });
    expect(events[0]).toEqual({ type: "gap", stream: "stdout", fromOffset: 1_000, toOffset: 1_000_000 });
    expect(text(events, "stdout").length).toBe(SANDBOX_LIMITS.execOutputMaxBytes);
    expect(events.at(-1)).toMatchObject({ end: { stdoutBytes: total } });
  });

  test("never waits for a follower that does not read", async () => {
    const { sandbox } = await attached();
    const total = 200_000_000;
    const { execId } = await sandbox.spawn(`head -c ${total} /dev/zero`);
    let covered = 0;
    let gaps = 0;
    for await (const event of sandbox.execs.follow(execId)) {
      // Disconnected for a while: the command goes on printing.
      if (covered === 0) await sleep(1_500);
      if (event.type === "output") {
        expect(event.offset).toBe(covered);
        covered += event.bytes.length;
      }
      if (event.type === "gap") {
        expect(event.fromOffset).toBe(covered);
        covered = event.toOffset;
        gaps++;
      }
      if (event.type === "end") expect(event.end).toMatchObject({ status: "completed", exitCode: 0 });
    }
    expect(covered).toBe(total);
    expect(gaps).toBeGreaterThan(0);
  });

  test("is followed beyond its end while something of it can print", async () => {
    const { sandbox } = await attached();
    const { execId } = await sandbox.spawn("(sleep 0.3; echo late) & echo early");
    expect(text(await collect(sandbox, execId, { until: "exit" }), "stdout")).toBe("early\n");
    expect(text(await collect(sandbox, execId, { until: "closed" }), "stdout")).toBe("early\nlate\n");
  });

  test("stops being followed when the follower aborts", async () => {
    const { sandbox } = await attached();
    const { execId } = await sandbox.spawn("echo x; sleep 60");
    const controller = new AbortController();
    const following = collect(sandbox, execId, { signal: controller.signal });
    setTimeout(() => controller.abort(new Error("enough")), 100);
    await expect(following).rejects.toThrow("enough");
    expect((await sandbox.activity()).runningExecs).toBe(1);
  });
});

describe("waiting", () => {
  test("for output finds what is held and what comes", async () => {
    const { sandbox } = await attached();
    const { execId } = await sandbox.spawn(
      "echo booting; sleep 0.2; printf 'listening on port 81'; sleep 0.1; echo 23; sleep 60",
    );
    const wait = (pattern: string, options = {}) =>
      sandbox.execs.waitForOutput(execId, pattern, { timeoutMs: 5_000, ...options });
    expect(await wait("^boot")).toEqual({ matched: true, stream: "stdout", line: "booting" });
    // Also a line that is not complete, and one that comes in pieces.
    expect(await wait("port 81")).toMatchObject({ matched: true });
    expect(await wait("port \\d{4}$")).toMatchObject({ matched: true, line: "listening on port 8123" });
    expect(await code(wait("never", { timeoutMs: 150 }))).toBe("wait_timeout");
    expect(await wait("port 8123", { literal: true })).toMatchObject({ matched: true });
    expect(await code(wait("p.rt 8123", { literal: true, timeoutMs: 100 }))).toBe("wait_timeout");
    expect(await code(wait("("))).toBe("invalid_pattern");
  });

  test("for output of a command that ends without it says so", async () => {
    const { sandbox } = await attached();
    const { execId } = await sandbox.spawn("echo a; echo b >&2");
    expect(await sandbox.execs.waitForOutput(execId, "c", { timeoutMs: 5_000 })).toEqual({ matched: false });
    expect(await sandbox.execs.waitForOutput(execId, "b", { timeoutMs: 5_000 })).toMatchObject({ stream: "stderr" });
  });

  test("for output survives a pattern that would never end", async () => {
    const { sandbox } = await attached();
    const { execId } = await sandbox.spawn(`echo ${"a".repeat(40)}`);
    expect(await code(sandbox.execs.waitForOutput(execId, "(a+)+$x", { timeoutMs: 5_000 }))).toBe("invalid_pattern");
  });

  test("for a port ends when it has a listener", async () => {
    const { sandbox } = await attached();
    const port = 20_000 + Math.floor(Math.random() * 10_000);
    const script = `setTimeout(() => require("net").createServer().listen(${port}, "127.0.0.1"), 300)`;
    expect(await code(sandbox.ports.waitFor(port, { timeoutMs: 50 }))).toBe("wait_timeout");
    await sandbox.spawn([process.execPath, "-e", script], { execId: "server" });
    await sandbox.ports.waitFor(port, { timeoutMs: 10_000 });
    const listening = (await sandbox.ports.list()).find((row) => row.port === port);
    const [server] = (await sandbox.processes()).filter(({ execId }) => execId === "server");
    expect(listening).toMatchObject({ address: "127.0.0.1", pid: server?.pid });
    expect(await code(sandbox.ports.waitFor(0, { timeoutMs: 50 }))).toBe("invalid_request");
  });
});

async function collect(sandbox: DaemonSandbox, execId: string, options?: FollowOptions): Promise<FollowEvent[]> {
  const events: FollowEvent[] = [];
  for await (const event of sandbox.execs.follow(execId, options)) events.push(event);
  return events;
}

function text(events: readonly FollowEvent[], stream: "stdout" | "stderr"): string {
  const parts = events.flatMap((event) => (event.type === "output" && event.stream === stream ? [event.bytes] : []));
  return Buffer.concat(parts).toString();
}
