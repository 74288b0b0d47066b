/** Persistent shells. A backend without them must say so; the other cases do not apply to it. */

import type { OutputOptions, Sandbox } from "@sandlot/contract";
import { type BackendCase, type BackendStage, withCapability } from "./stage.ts";

const HERE = "/mnt/user-data/workspace";
const NOTHING = { stdout: { totalBytes: 0 }, stderr: { totalBytes: 0 } };

export const sessionCases: readonly BackendCase[] = withCapability("sessions", (sandbox) => sandbox.sessions.open(), [
  {
    name: "directory, variables and functions stay from one command to the next",
    run: async (stage) => {
      const { run } = await opened(stage);
      await run("mkdir -p a/b; cd a/b; colour=red; greet() { echo hello $1; }; export SHAPE=round");
      const { stdout, cwd } = await run('pwd; echo $colour; greet you; sh -c "echo $SHAPE"');
      stage.expect(stdout).toBe(`${HERE}/a/b\nred\nhello you\nround\n`);
      stage.expect(cwd).toBe(`${HERE}/a/b`);
    },
  },
  {
    name: "a result has exit code and both streams, apart",
    run: async (stage) => {
      const { run } = await opened(stage);
      const { status, exitCode, stdout, stderr, shellEnded } = await run("echo out; echo err >&2; (exit 3)");
      stage.expect({ status, exitCode, stdout, stderr, shellEnded }).toEqual({
        ...{ status: "completed", exitCode: 3, stdout: "out\n", stderr: "err\n", shellEnded: false },
      });
      stage.expect((await run("echo $?")).stdout).toBe("3\n");
    },
  },
  {
    name: "a session begins where and with what it is told",
    run: async (stage) => {
      const { run } = await opened(stage, { cwd: "/tmp", env: { COLOUR: "blue" } });
      stage.expect((await run('echo "$PWD $COLOUR"')).stdout).toBe("/tmp blue\n");
    },
  },
  {
    name: "two sessions share nothing but files",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const [one, two] = [await sandbox.sessions.open(), await sandbox.sessions.open()];
      await sandbox.sessions.exec(one.sessionId, "cd /tmp; x=1; echo shared > /tmp/file");
      const { stdout } = await sandbox.sessions.exec(two.sessionId, 'echo "$PWD [$x]"; cat /tmp/file');
      stage.expect(stdout).toBe(`${HERE} []\nshared\n`);
    },
  },
  {
    name: "commands of one session run one after the other",
    run: async (stage) => {
      const { run } = await opened(stage);
      const [first, second] = await Promise.all([run("sleep 0.2; n=1; echo first"), run("echo second $n")]);
      stage.expect([first.stdout, second.stdout]).toEqual(["first\n", "second 1\n"]);
    },
  },
  {
    name: "exit ends the shell, and the next command has a fresh one in the same directory",
    run: async (stage) => {
      const { run } = await opened(stage);
      await run("mkdir -p kept; cd kept; x=1");
      const left = await run("exit 7");
      stage.expect([left.exitCode, left.shellEnded]).toEqual([7, true]);
      const next = await run('echo "$PWD [$x]"');
      stage.expect([next.stdout, next.shellEnded]).toEqual([`${HERE}/kept []\n`, false]);
    },
  },
  {
    name: "a timeout ends the command and says so",
    run: async (stage) => {
      const { run } = await opened(stage);
      const late = await run("echo before; sleep 30; echo after", { timeoutMs: 300 });
      stage.expect([late.status, late.stdout]).toEqual(["timed_out", "before\n"]);
      stage.expect((await run("echo alive")).stdout).toBe("alive\n");
    },
  },
  {
    name: "what a command has printed until now can be read while it runs, and until the next one begins",
    run: async (stage) => {
      const { sandbox, sessionId, run, output } = await opened(stage);
      await stage.rejects(output(), "exec_not_found");
      await stage.rejects(sandbox.sessions.output("none"), "session_not_found");
      const running = run("printf 'é one\\n'; echo err >&2; while [ ! -e go ]; do sleep 0.05; done; echo two");
      await stage.eventually("both lines are printed", async () => {
        const { stdout, stderr } = await output().catch(() => NOTHING);
        return stdout.totalBytes + stderr.totalBytes === 11;
      });
      const first = await output();
      stage.expect(first).toEqual({
        ...{ execId: `${sessionId}:1`, status: "running", exitCode: null },
        stdout: { text: "é one\n", offset: 0, nextOffset: 7, totalBytes: 7 },
        stderr: { text: "err\n", offset: 0, nextOffset: 4, totalBytes: 4 },
      });
      await sandbox.files.write(`${HERE}/go`, "");
      await running;
      const rest = await output({ from: { stdout: first.stdout.nextOffset, stderr: first.stderr.nextOffset } });
      stage.expect([rest.status, rest.exitCode]).toEqual(["completed", 0]);
      stage.expect([rest.stdout.text, rest.stderr.text, rest.stdout.totalBytes]).toEqual(["two\n", "", 11]);
      await run("echo next");
      stage.expect((await output()).stdout.text).toBe("next\n");
    },
  },
  {
    name: "a large output is read in parts of whole characters, each byte once",
    run: async (stage) => {
      const { run, output } = await opened(stage);
      const { omitted } = await run("i=0; while [ $i -lt 200 ]; do printf 'ü%03d' $i; i=$((i+1)); done", {
        outputMaxBytes: 100,
      });
      stage.expect(omitted?.remedy).toContain("sessions.output");
      let text = "";
      for (let at = 0; ; ) {
        const { stdout } = await output({ from: { stdout: at }, maxBytes: 7 });
        if (stdout.text === "") break;
        stage.expect(Buffer.byteLength(stdout.text)).toBeLessThanOrEqual(7);
        text += stdout.text;
        at = stdout.nextOffset;
      }
      stage.expect(text).toBe(Array.from({ length: 200 }, (_, i) => `ü${String(i).padStart(3, "0")}`).join(""));
      await stage.rejects(output({ maxBytes: 1 }), "invalid_request");
    },
  },
  {
    name: "input is the command's, not the shell's",
    run: async (stage) => {
      const { run } = await opened(stage);
      stage.expect((await run("cat; echo end", { stdin: "in\n" })).stdout).toBe("in\nend\n");
      stage.expect((await run("cat; echo empty")).stdout).toBe("empty\n");
    },
  },
  {
    name: "something left in the background does not hold a command up",
    run: async (stage) => {
      const { run } = await opened(stage);
      const ms = await stage.elapsedMs(() => run("sleep 20 & echo started"));
      stage.expect(ms < 10_000).toBe(true);
      stage.expect((await run("kill %1 2>/dev/null || kill $!; echo ended")).stdout).toBe("ended\n");
    },
  },
  {
    name: "a syntax error is a result, and the session goes on",
    run: async (stage) => {
      const { run } = await opened(stage);
      const broken = await run("echo 'unclosed");
      stage.expect(broken.exitCode === 0).toBe(false);
      stage.expect((await run("echo on")).stdout).toBe("on\n");
    },
  },
  {
    name: "a session is found by its id, listed, and closed",
    run: async (stage) => {
      const { sessions } = await stage.sandbox();
      const { sessionId } = await sessions.open({ sessionId: "mine" });
      await sessions.exec(sessionId, "x=1");
      await sessions.open({ sessionId: "mine" });
      stage.expect((await sessions.exec("mine", "echo $x")).stdout).toBe("1\n");
      stage.expect((await sessions.list()).map((session) => session.sessionId)).toEqual(["mine"]);
      await sessions.close("mine");
      await sessions.close("mine");
      stage.expect(await sessions.list()).toEqual([]);
      await stage.rejects(sessions.exec("mine", "true"), "session_not_found");
    },
  },
]);

async function opened(stage: BackendStage, options?: Parameters<Sandbox["sessions"]["open"]>[0]) {
  const sandbox = await stage.sandbox();
  const { sessions } = sandbox;
  const { sessionId } = await sessions.open(options);
  return {
    sandbox,
    sessionId,
    output: (more?: OutputOptions) => sessions.output(sessionId, more),
    run: (command: string, more?: Parameters<Sandbox["sessions"]["exec"]>[2]) =>
      sessions.exec(sessionId, command, more),
  };
}
