/**
 * Supervisor and daemon are out of reach for the commands of their sandbox, and their secrets are useless elsewhere.
 */

import { afterAll, describe, expect, it } from "vitest";
import { expectClosedDaemon } from "../../closed-daemon.ts";
import { onStage, removeDaemon } from "../local-harness.ts";

afterAll(removeDaemon);

describe("the processes that a sandbox is run by", () => {
  it("are closed to commands: memory, environment, descriptors, maps", () =>
    onStage(async (stage) => expectClosedDaemon(await stage.sandbox())));

  it("are closed again after the daemon was killed", () =>
    onStage(async (stage) => {
      const made = await stage.make();
      const first = await stage.attach(made.target);
      await first.sandbox.exec("kill -9 -1", { cwd: "/tmp" }).catch(() => {});
      await first.closed;
      const { sandbox } = await stage.attach(made.target);
      await expectClosedDaemon(sandbox);
    }));

  it("still mark commands for the kernel before they run, and themselves not", () =>
    onStage(async (stage) => {
      const sandbox = await stage.sandbox();
      const looks = Array.from({ length: 50 }, () => sandbox.exec(["/bin/cat", "/proc/self/oom_score_adj"]));
      expect(new Set((await Promise.all(looks)).map(({ stdout }) => stdout))).toEqual(new Set(["1000\n"]));
      // The daemon has a command's score while it starts one.
      const { stdout } = await sandbox.exec("sleep 0.3; cat /proc/$(pgrep -x sandboxd)/oom_score_adj");
      expect(stdout).toMatch(/^\d{1,3}\n$/);
    }));

  it("still find what an exec has daemonised", () =>
    onStage(async (stage) => {
      const sandbox = await stage.sandbox();
      // Others run, so that it cannot be recognised as the only one.
      const other = await sandbox.spawn("sleep 90");
      await sandbox.exec("(env -i setsid sleep 77 > /dev/null 2>&1 &) ; sleep 30", { timeoutMs: 400 });
      expect((await sandbox.processes()).map(({ command }) => command)).toEqual(["sleep 90"]);
      await sandbox.execs.kill(other.execId);
    }));
});
