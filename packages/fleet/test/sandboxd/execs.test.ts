/** Commands by their id: listed, signalled, fed. */

import { setTimeout as sleep } from "node:timers/promises";
import { SandlotError } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import { attached } from "./attached.ts";
import { code, eventually } from "./expectations.ts";

describe("the list of execs", () => {
  test("has what runs and what is remembered, with how much it printed", async () => {
    const { sandbox } = await attached();
    await sandbox.exec("true");
    await sandbox.spawn(["sh", "-c", "echo out; echo error >&2; exit 3"], { execId: "short" });
    await sandbox.spawn("sleep 60", { execId: "long" });
    await eventually(async () => (await sandbox.execs.list())[0]?.status === "completed");
    const [short, long, ...others] = await sandbox.execs.list();
    expect(others).toEqual([]);
    expect(short).toEqual({
      execId: "short",
      command: ["sh", "-c", "echo out; echo error >&2; exit 3"],
      status: "completed",
      exitCode: 3,
      pid: expect.any(Number),
      startedAt: expect.any(Number),
      stdoutBytes: 4,
      stderrBytes: 6,
    });
    expect(long).toMatchObject({ execId: "long", command: "sleep 60", status: "running", exitCode: null });
    expect(Math.abs((long?.startedAt ?? 0) - Date.now())).toBeLessThan(60_000);
    await sandbox.execs.kill("long");
    expect((await sandbox.execs.list())[1]).toMatchObject({ status: "killed" });
  });

  test("is not activity", async () => {
    const { sandbox } = await attached();
    const { lastActivityAt } = await sandbox.activity();
    await sleep(20);
    await sandbox.execs.list();
    await sandbox.sessions.list();
    await sandbox.terminals.list();
    expect((await sandbox.activity()).lastActivityAt).toBe(lastActivityAt);
  });
});

describe("a signal", () => {
  test("reaches the command's process group, as long as the command runs", async () => {
    const { sandbox } = await attached();
    const trap = `trap 'echo got' USR1; trap 'exit 5' INT; echo ready; while :; do sleep 0.02; done`;
    await sandbox.spawn(trap, { execId: "trap" });
    await sandbox.execs.waitForOutput("trap", "ready", { timeoutMs: 5_000 });
    // Its child, a sleep, dies of this signal.
    expect(await sandbox.execs.signal("trap", "SIGUSR1")).toBe(true);
    await sandbox.execs.waitForOutput("trap", "got", { timeoutMs: 5_000 });
    expect(await sandbox.execs.signal("trap", "SIGINT")).toBe(true);
    const events = [];
    for await (const event of sandbox.execs.follow("trap")) events.push(event);
    expect(events.at(-1)).toMatchObject({ type: "end", end: { status: "completed", exitCode: 5 } });
    expect(await sandbox.execs.signal("trap", "SIGINT")).toBe(false);
    expect(await sandbox.execs.signal("never-was", "SIGINT")).toBe(false);
    expect(await code(sandbox.execs.signal("trap", "SIGSEGV" as "SIGINT"))).toBe("invalid_request");
  });

  test("can stop a command and let it go on", async () => {
    const { sandbox } = await attached();
    const { pid } = await sandbox.spawn("while :; do :; done", { execId: "loop" });
    const state = async () => (await sandbox.processes()).find((row) => row.pid === pid)?.state;
    await sandbox.execs.signal("loop", "SIGSTOP");
    await eventually(async () => (await state()) === "T");
    await sandbox.execs.signal("loop", "SIGCONT");
    await eventually(async () => (await state()) === "R");
    // A stopped one ends, too.
    await sandbox.execs.signal("loop", "SIGSTOP");
    expect(await sandbox.execs.kill("loop")).toBe(true);
  });
});

describe.each([{ how: "with" }, { how: "without", environment: { PATH: "/nowhere" } }])(
  "stdin $how mkfifo",
  (given) => {
    const options = given.environment === undefined ? {} : { environment: given.environment };

    test("takes bytes while the command runs, until it is ended", async () => {
      const { sandbox } = await attached(options);
      await sandbox.spawn(["/bin/cat"], { execId: "cat", stdin: "first ", keepStdinOpen: true });
      await sandbox.execs.writeStdin("cat", "second\n");
      await sandbox.execs.waitForOutput("cat", "first second", { timeoutMs: 5_000 });
      await sandbox.execs.writeStdin("cat", new Uint8Array([0x74, 0x68, 0x0a]), { end: true });
      const result = await sandbox.exec(["/bin/cat"], { execId: "cat" }).catch((error: SandlotError) => error.code);
      // Another call than the first one: that one kept its stdin open.
      expect(result).toBe("exec_conflict");
      let output = "";
      for await (const event of sandbox.execs.follow("cat"))
        if (event.type === "output") output += Buffer.from(event.bytes).toString();
      expect(output).toBe("first second\nth\n");
      expect(await code(sandbox.execs.writeStdin("cat", "more"))).toBe("stdin_closed");
      expect(await code(sandbox.execs.writeStdin("never-was", "more"))).toBe("exec_not_found");
    });

    test("that is not read holds the writer back, and ends with a result", async () => {
      const { sandbox } = await attached(options);
      await sandbox.spawn("sleep 60", { execId: "deaf", keepStdinOpen: true });
      let written = false;
      const writing = sandbox.execs.writeStdin("deaf", new Uint8Array(4_000_000)).then(
        () => {
          written = true;
          return "no error";
        },
        (error: SandlotError) => error.code,
      );
      await sleep(150);
      expect(written).toBe(false);
      await sandbox.execs.kill("deaf");
      expect(await writing).toBe("stdin_closed");
      await sandbox.spawn("sleep 60", { execId: "plain", stdin: "x" });
      expect(await code(sandbox.execs.writeStdin("plain", "more"))).toBe("stdin_closed");
    });
  },
);

describe("an open stdin", () => {
  test("can be opened by name", async () => {
    const { sandbox } = await attached();
    await sandbox.spawn("cat /dev/stdin", { execId: "named", keepStdinOpen: true });
    await sandbox.execs.writeStdin("named", "by name\n");
    await sandbox.execs.waitForOutput("named", "by name", { timeoutMs: 5_000 });
    await sandbox.execs.kill("named");
  });

  test("goes through a megabyte unharmed", async () => {
    const { sandbox } = await attached();
    const bytes = Uint8Array.from({ length: 1_000_003 }, (_, i) => (i * 31) % 251);
    await sandbox.spawn("sha256sum", { execId: "sum", keepStdinOpen: true });
    for (let at = 0; at < bytes.length; at += 100_000)
      await sandbox.execs.writeStdin("sum", bytes.subarray(at, at + 100_000));
    await sandbox.execs.writeStdin("sum", "", { end: true });
    const expected = (await sandbox.exec("sha256sum", { stdin: bytes })).stdout;
    const reply = await sandbox.execs.waitForOutput("sum", "[0-9a-f]{64}", { timeoutMs: 5_000 });
    expect(reply).toMatchObject({ matched: true, line: expected.trim() });
  });
});

describe("the limit on what runs", () => {
  test("is an error with its numbers, and ends with what runs", async () => {
    const { sandbox } = await attached({ config: { execMax: 3 } });
    await sandbox.spawn("sleep 60", { execId: "a" });
    await sandbox.spawn("sleep 60", { execId: "b" });
    await sandbox.sessions.open({ sessionId: "s" });
    const refusal: unknown = await sandbox.exec("true").catch((error: unknown) => error);
    expect(refusal).toBeInstanceOf(SandlotError);
    expect(refusal).toMatchObject({ code: "exec_limit", details: { running: 3, max: 3 } });
    expect(await code(sandbox.sessions.open())).toBe("exec_limit");
    expect(await code(sandbox.terminals.open({ columns: 80, rows: 24 }))).toBe("exec_limit");
    // The same call again is no new one.
    expect(await sandbox.spawn("sleep 60", { execId: "a" })).toMatchObject({ execId: "a" });
    await sandbox.execs.kill("a");
    expect((await sandbox.exec("echo room")).stdout).toBe("room\n");
    // A background process that a command left does not count as a running command.
    await sandbox.exec("sleep 60 > /dev/null 2>&1 &");
    expect((await sandbox.exec("echo room")).stdout).toBe("room\n");
  });
});
