/** Where sandboxes with an AIO server differ from the backend suite, and what they do instead. */

import type { BackendStage } from "../../src/testing/backend-suite/stage.ts";
import type { BackendDeviation } from "../../src/testing/backend-suite.ts";

const HERE = "/mnt/user-data/workspace";

function missing(reason: string, use: (stage: BackendStage) => Promise<unknown>): BackendDeviation {
  return { reason, instead: (stage) => stage.rejects(use(stage), "capability_missing") };
}

export const AIO_DEVIATIONS: Readonly<Record<string, BackendDeviation>> = {
  "exec: a result holds the end of the output, and tells how much is before it and how to get it": {
    reason: "AIO's server does not remember a command that was waited for",
    instead: async (stage) => {
      const sandbox = await stage.sandbox();
      const result = await sandbox.exec("printf 'aöö'", { outputMaxBytes: 3 });
      stage.expect([result.stdout, result.omitted?.stdoutBytes]).toEqual(["ö", 3]);
    },
  },
  "spawning: stdin that is kept open takes input until it is ended": missing(
    "AIO takes input and cannot end it",
    async (stage) => {
      const sandbox = await stage.sandbox();
      const { execId } = await sandbox.spawn("read a; read b; echo $a $b", { stdin: "one\n", keepStdinOpen: true });
      await sandbox.execs.writeStdin(execId, "two\n");
      await sandbox.execs.waitForOutput(execId, "one two", { timeoutMs: 10_000, literal: true });
      const waiting = await sandbox.spawn("cat", { keepStdinOpen: true });
      await sandbox.execs.writeStdin(waiting.execId, "x", { end: true });
    },
  ),
  "spawning: a command that is held waits for a slow reader, who gets every byte": {
    reason: "AIO's server keeps output in its own way and lets no command wait",
    instead: async (stage) => {
      const sandbox = await stage.sandbox();
      const { execId } = await sandbox.spawn("echo all of it", { output: "hold" });
      const parts: string[] = [];
      for await (const event of sandbox.execs.follow(execId))
        if (event.type === "output") parts.push(new TextDecoder().decode(event.bytes));
      stage.expect(parts.join("")).toBe("all of it\n");
    },
  },
  "spawning: with until closed, what was left in the background is followed too": missing(
    "AIO does not tell when the last writer has gone",
    async (stage) => {
      const sandbox = await stage.sandbox();
      const { execId } = await sandbox.spawn("true");
      for await (const _ of sandbox.execs.follow(execId, { until: "closed" })) return;
    },
  ),
  "activity: what a command left in the background counts until it ends": {
    reason: "AIO's server forgets what a command left behind; only its processor time is seen",
    instead: async (stage) => {
      const made = await stage.make();
      const { sandbox } = await stage.attach(made.target);
      await sandbox.exec("(while [ ! -e /tmp/stop ]; do :; done) >/dev/null 2>&1 &");
      await stage.eventually("it is seen at work", async () => {
        const { runningExecs, cpuShare } = await stage.backend.activity(made.created.ref, stage.signal);
        return runningExecs === 0 && cpuShare > 0.1;
      });
      await sandbox.files.write("/tmp/stop", "");
    },
  },
  "file search: grep refuses what is no expression, and gives up on one that does not end": {
    reason: "AIO's server matches, and how long it takes is its own affair",
    instead: async (stage) => {
      const { files } = await stage.sandbox();
      await files.write(`${HERE}/file`, "a(b\n");
      await stage.rejects(files.grep(HERE, "("), "invalid_pattern");
      stage.expect((await files.grep(HERE, "(", { literal: true })).matches.length).toBe(1);
      await stage.rejects(files.grep(`${HERE}/missing`, "x"), "file_not_found");
    },
  },
};
