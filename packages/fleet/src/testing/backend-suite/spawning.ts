/** Commands that run in the background: spawned, followed, fed, found again, ended. */

import { type FollowEvent, type FollowOptions, SANDBOX_LIMITS, type Sandbox } from "@sandlot/contract";
import type { BackendCase } from "./stage.ts";

export const spawningCases: readonly BackendCase[] = [
  {
    name: "a spawned command comes back at once and is followed to its end",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const { execId } = await sandbox.spawn("echo out; echo err >&2; sleep 0.3; echo late; exit 4");
      const { stdout, stderr, end } = await followed(sandbox, execId);
      stage.expect([stdout, stderr]).toEqual(["out\nlate\n", "err\n"]);
      stage.expect([end?.status, end?.exitCode, end?.stdoutBytes, end?.stderrBytes]).toEqual(["completed", 4, 9, 4]);
    },
  },
  {
    name: "output can be followed from an offset, and again after the end",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const { execId } = await sandbox.spawn("printf 0123456789");
      stage.expect((await followed(sandbox, execId)).stdout).toBe("0123456789");
      stage.expect((await followed(sandbox, execId, { from: { stdout: 4 } })).stdout).toBe("456789");
    },
  },
  {
    name: "what a command has printed until now is read without waiting, and the rest by offset",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      await stage.rejects(sandbox.execs.output("none"), "exec_not_found");
      const { execId } = await sandbox.spawn(
        "printf ab; echo err >&2; while [ ! -e go ]; do sleep 0.05; done; printf c",
      );
      await stage.eventually("both are printed", async () => {
        const { stdout, stderr } = await sandbox.execs.output(execId);
        return stdout.totalBytes + stderr.totalBytes === 6;
      });
      const first = await sandbox.execs.output(execId);
      stage.expect(first).toEqual({
        ...{ execId, status: "running", exitCode: null },
        stdout: { text: "ab", offset: 0, nextOffset: 2, totalBytes: 2 },
        stderr: { text: "err\n", offset: 0, nextOffset: 4, totalBytes: 4 },
      });
      await sandbox.files.write("/mnt/user-data/workspace/go", "");
      await followed(sandbox, execId);
      const from = { stdout: first.stdout.nextOffset, stderr: first.stderr.nextOffset };
      stage.expect(await sandbox.execs.output(execId, { from })).toEqual({
        ...{ execId, status: "completed", exitCode: 0 },
        stdout: { text: "c", offset: 2, nextOffset: 3, totalBytes: 3 },
        stderr: { text: "", offset: 4, nextOffset: 4, totalBytes: 4 },
      });
      await stage.rejects(sandbox.execs.output(execId, { maxBytes: 3 }), "invalid_request");
    },
  },
  {
    name: "two follow one command without disturbing each other",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const { execId } = await sandbox.spawn("for i in 1 2 3; do echo $i; sleep 0.1; done");
      const both = await Promise.all([followed(sandbox, execId), followed(sandbox, execId)]);
      stage.expect(both.map(({ stdout }) => stdout)).toEqual(["1\n2\n3\n", "1\n2\n3\n"]);
    },
  },
  {
    name: "a reader that stops leaves the command alone",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const { execId } = await sandbox.spawn("echo first; sleep 0.3; echo second");
      for await (const event of sandbox.execs.follow(execId)) if (event.type === "output") break;
      stage.expect((await followed(sandbox, execId)).stdout).toBe("first\nsecond\n");
    },
  },
  {
    name: "a command that is held waits for a slow reader, who gets every byte",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const total = 2.5 * SANDBOX_LIMITS.execOutputMaxBytes;
      const { execId } = await sandbox.spawn(`yes | head -c ${total}`, { output: "hold" });
      let received = 0;
      let isFirst = true;
      for await (const event of sandbox.execs.follow(execId)) {
        stage.expect(event.type === "gap").toBe(false);
        if (event.type === "output") received += event.bytes.byteLength;
        if (!isFirst) continue;
        isFirst = false;
        // Long enough to print everything, if nothing holds the output back.
        await stage.pause(1_000);
        const info = (await sandbox.execs.list()).find((exec) => exec.execId === execId);
        stage.expect([info?.status, info?.output]).toEqual(["running", "hold"]);
      }
      stage.expect(received).toBe(total);
    },
  },
  {
    name: "a signal ends following, not the command",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const { execId } = await sandbox.spawn("sleep 30");
      const controller = new AbortController();
      const reason = new Error("enough");
      const following = followed(sandbox, execId, { signal: controller.signal });
      controller.abort(reason);
      await stage.rejectsWith(following, reason);
      stage.expect((await sandbox.execs.list()).find((exec) => exec.execId === execId)?.status).toBe("running");
      stage.expect(await sandbox.execs.kill(execId)).toBe(true);
    },
  },
  {
    name: "stdin that is kept open takes input until it is ended",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const { execId } = await sandbox.spawn("cat", { stdin: "one\n", keepStdinOpen: true });
      await sandbox.execs.writeStdin(execId, "two\n");
      await sandbox.execs.writeStdin(execId, new TextEncoder().encode("three\n"), { end: true });
      const { stdout, end } = await followed(sandbox, execId);
      stage.expect([stdout, end?.exitCode]).toEqual(["one\ntwo\nthree\n", 0]);
      await stage.rejects(sandbox.execs.writeStdin(execId, "four\n"), "stdin_closed");
    },
  },
  {
    name: "stdin that was not kept open takes nothing",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const { execId } = await sandbox.spawn("sleep 30");
      await stage.rejects(sandbox.execs.writeStdin(execId, "x"), "stdin_closed");
      await sandbox.execs.kill(execId);
    },
  },
  {
    name: "the list shows what runs and what is remembered",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      await sandbox.spawn("sleep 30", { execId: "long" });
      await sandbox.spawn(["echo", "x"], { execId: "short" });
      await followed(sandbox, "short");
      const found = (await sandbox.execs.list()).map(({ execId, status, exitCode, command }) => [
        ...[execId, status, exitCode, command],
      ]);
      stage.expect(found.find(([id]) => id === "long")).toEqual(["long", "running", null, "sleep 30"]);
      stage.expect(found.find(([id]) => id === "short")).toEqual(["short", "completed", 0, ["echo", "x"]]);
      await sandbox.execs.kill("long");
    },
  },
  {
    name: "a killed command ends as killed, and killing what is gone says so",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const { execId } = await sandbox.spawn("sleep 30");
      stage.expect(await sandbox.execs.kill(execId)).toBe(true);
      stage.expect((await followed(sandbox, execId)).end?.status).toBe("killed");
      stage.expect(await sandbox.execs.kill("never-was")).toBe(false);
    },
  },
  {
    name: "a signal reaches the command",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const { execId } = await sandbox.spawn(["sleep", "30"]);
      stage.expect(await sandbox.execs.signal(execId, "SIGINT")).toBe(true);
      const { end } = await followed(sandbox, execId);
      stage.expect([end?.status, end?.signal]).toEqual(["killed", "SIGINT"]);
    },
  },
  {
    name: "following what never was is exec_not_found",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      await stage.rejects(followed(sandbox, "never-was"), "exec_not_found");
    },
  },
  {
    name: "the same spawn twice is one run",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const command = "echo x >> runs; sleep 0.2";
      await Promise.all([sandbox.spawn(command, { execId: "once" }), sandbox.spawn(command, { execId: "once" })]);
      await followed(sandbox, "once");
      stage.expect(await sandbox.files.readText("/mnt/user-data/workspace/runs")).toBe("x\n");
      await stage.rejects(sandbox.spawn("echo other", { execId: "once" }), "exec_conflict");
    },
  },
  {
    name: "waiting for output ends with the line, with the end, or in time",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const { execId } = await sandbox.spawn("sleep 0.2; echo listening on 8080; sleep 30");
      const reply = await sandbox.execs.waitForOutput(execId, "on \\d+", { timeoutMs: 5_000 });
      stage.expect(reply).toEqual({ matched: true, stream: "stdout", line: "listening on 8080" });
      await stage.rejects(sandbox.execs.waitForOutput(execId, "never", { timeoutMs: 100 }), "wait_timeout");
      await sandbox.execs.kill(execId);
      const ended = await sandbox.spawn("echo done");
      const nothing = await sandbox.execs.waitForOutput(ended.execId, "never", { timeoutMs: 5_000, literal: true });
      stage.expect(nothing).toEqual({ matched: false });
    },
  },
  {
    name: "with until closed, what was left in the background is followed too",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const { execId } = await sandbox.spawn("(sleep 0.4; echo behind) & echo front");
      stage.expect((await followed(sandbox, execId, { until: "closed" })).stdout).toBe("front\nbehind\n");
    },
  },
];

async function followed(sandbox: Sandbox, execId: string, options?: FollowOptions) {
  const text = { stdout: "", stderr: "" };
  let end: Extract<FollowEvent, { type: "end" }>["end"] | undefined;
  for await (const event of sandbox.execs.follow(execId, options)) {
    if (event.type === "output") text[event.stream] += new TextDecoder().decode(event.bytes);
    else if (event.type === "end") end = event.end;
  }
  return { ...text, end };
}
