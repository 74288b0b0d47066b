/** The activity inside a sandbox, which decides idleness. */

import type { BackendCase, BackendStage, Made } from "./stage.ts";

export const activityCases: readonly BackendCase[] = [
  {
    name: "a sandbox that does nothing is idle, however often it is asked",
    run: async (stage) => {
      const made = await stage.make();
      await stage.attach(made.target);
      for (let asked = 0; asked < 5; asked++) {
        const activity = await stage.backend.activity(made.created.ref, stage.signal);
        stage.expect(activity).toMatchObject({ runningExecs: 0, openTerminals: 0, previewTrafficAt: null });
        stage.expect(activity.cpuShare).toBeGreaterThanOrEqual(0);
        await stage.backend.probe(made.created.ref, stage.signal);
        await stage.backend.list({ consistent: true }, stage.signal);
      }
    },
  },
  {
    name: "commands count while they run",
    run: async (stage) => {
      const made = await stage.make();
      const { sandbox } = await stage.attach(made.target);
      const controller = new AbortController();
      const first = sandbox.exec("sleep 60", { signal: controller.signal }).catch(() => {});
      await running(stage, made, 1);
      const second = sandbox.exec("sleep 60", { signal: controller.signal }).catch(() => {});
      await running(stage, made, 2);
      controller.abort();
      await Promise.all([first, second]);
      await running(stage, made, 0);
    },
  },
  {
    name: "what a command left in the background counts until it ends",
    run: async (stage) => {
      const made = await stage.make();
      const { sandbox } = await stage.attach(made.target);
      const { status } = await sandbox.exec("(while [ ! -e /tmp/stop ]; do sleep 0.05; done) >/dev/null 2>&1 &");
      stage.expect(status).toBe("completed");
      await stage.pause(200);
      stage.expect((await stage.backend.activity(made.created.ref, stage.signal)).runningExecs).toBe(1);
      await sandbox.files.write("/tmp/stop", "");
      await running(stage, made, 0);
    },
  },
  {
    name: "file calls leave no activity behind",
    run: async (stage) => {
      const made = await stage.make();
      const { sandbox } = await stage.attach(made.target);
      await sandbox.files.write("/tmp/file", "x");
      await sandbox.files.read("/tmp/file");
      stage.expect((await stage.backend.activity(made.created.ref, stage.signal)).runningExecs).toBe(0);
    },
  },
];

function running(stage: BackendStage, made: Made, count: number): Promise<void> {
  return stage.eventually(`${count} commands run`, async () => {
    return (await stage.backend.activity(made.created.ref, stage.signal)).runningExecs === count;
  });
}
