/** The end of commands that do not end by themselves, and the processes they leave. */

import type { Sandbox } from "@sandlot/contract";
import type { BackendCase, BackendStage } from "./stage.ts";

export const execEndingCases: readonly BackendCase[] = [
  {
    name: "a timeout ends the command and keeps what it has written",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const result = await sandbox.exec("echo before; sleep 60; echo after", { timeoutMs: 300 });
      stage.expect(result).toMatchObject({ status: "timed_out", exitCode: null, stdout: "before\n" });
      stage.expect(result.durationMs).toBeGreaterThanOrEqual(250);
    },
  },
  {
    name: "a timeout ends the whole tree",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const command = "(sleep 1; echo late > late) & (sleep 1; echo late > later); echo latest > latest";
      stage.expect((await sandbox.exec(command, { timeoutMs: 300 })).status).toBe("timed_out");
      await stage.pause(1_500);
      stage.expect((await sandbox.exec("ls")).stdout).toBe("");
    },
  },
  {
    name: "a timeout ends a loop that never waits",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const elapsedMs = await stage.elapsedMs(async () => {
        stage.expect((await sandbox.exec("while :; do :; done", { timeoutMs: 300 })).status).toBe("timed_out");
      });
      stage.expect(elapsedMs).toBeLessThanOrEqual(5_000);
    },
  },
  {
    name: "a command that is faster than its timeout completes, and 0 means no limit",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      stage.expect((await sandbox.exec("sleep 0.1; echo done", { timeoutMs: 10_000 })).status).toBe("completed");
      stage
        .expect(await sandbox.exec("sleep 0.3; echo done", { timeoutMs: 0 }))
        .toMatchObject({ status: "completed", stdout: "done\n" });
    },
  },
  {
    name: "a timeout that is no duration is refused",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      for (const timeoutMs of [-1, Number.NaN, Number.POSITIVE_INFINITY]) {
        await stage.rejects(sandbox.exec("echo no", { timeoutMs }), "invalid_request");
      }
    },
  },
  {
    name: "an abort ends the whole tree and rejects with its reason",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const controller = new AbortController();
      const reason = new Error("enough");
      const running = sandbox.exec("touch /tmp/started; (sleep 1; touch late) & sleep 60; touch late", {
        signal: controller.signal,
      });
      await stage.eventually("it runs", () => exists(sandbox, "/tmp/started"));
      controller.abort(reason);
      await stage.rejectsWith(running, reason);
      await stage.pause(1_500);
      stage.expect((await sandbox.exec("ls")).stdout).toBe("");
    },
  },
  {
    name: "a signal that has fired runs nothing",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const reason = new Error("too late");
      await stage.rejectsWith(sandbox.exec("touch ran", { signal: AbortSignal.abort(reason) }), reason);
      await stage.pause(200);
      stage.expect((await sandbox.exec("ls")).stdout).toBe("");
    },
  },
  {
    name: "a signal that fires after the end changes nothing",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const controller = new AbortController();
      const result = await sandbox.exec("echo done", { execId: "ended", signal: controller.signal });
      controller.abort();
      stage.expect(await sandbox.exec("echo done", { execId: "ended" })).toEqual(result);
    },
  },
  {
    name: "a command that a signal ended says which",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      stage
        .expect(await sandbox.exec("echo before; kill -KILL $$; echo after"))
        .toMatchObject({ exitCode: null, signal: "SIGKILL", stdout: "before\n" });
    },
  },
  {
    name: "what goes to the background does not hold its command, and goes on",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      const command = "(sleep 1; echo done > /tmp/done) & echo started";
      const elapsedMs = await stage.elapsedMs(async () => {
        stage
          .expect(await sandbox.exec(command))
          .toMatchObject({ status: "completed", exitCode: 0, stdout: "started\n" });
      });
      stage.expect(elapsedMs).toBeLessThanOrEqual(900);
      await stage.eventually("the background has ended", () => exists(sandbox, "/tmp/done"));
    },
  },
  {
    name: "what runs in the background outlives the attachment",
    run: async (stage: BackendStage) => {
      const { target } = await stage.make();
      const first = await stage.attach(target);
      await first.sandbox.exec("(sleep 0.5; echo done > /tmp/done) >/dev/null 2>&1 &");
      await first.close();
      const { sandbox } = await stage.attach(target);
      await stage.eventually("the background has ended", () => exists(sandbox, "/tmp/done"));
    },
  },
];

function exists(sandbox: Sandbox, path: string): Promise<boolean> {
  return sandbox.files.stat(path).then(
    () => true,
    () => false,
  );
}
