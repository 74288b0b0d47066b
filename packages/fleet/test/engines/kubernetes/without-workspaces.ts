/** The cases of the backend suite that a backend without lasting workspaces cannot pass. */

import type { BackendSuiteOptions } from "../../../src/testing/backend-suite.ts";

const REASON = "with kubernetes.workspaces none a workspace ends with its pod";

const WORKSPACES = [
  "a thread's sandbox has its workspace at home, new at first and existing then",
  "the workspace survives its sandbox, everything else does not",
  "moveIn brings a home into a blank that runs",
  "a step that does not fit says so and changes nothing",
  "a destroyed sandbox with a workspace in its slot stays listed as dead until that has moved home",
  "another sandbox in the same generation reaches nothing of the workspace",
  "what an older generation has in its slot is put into quarantine, and home is left alone",
  "an older generation moves, makes and purges nothing",
  "a sandbox of an older generation that lands late reaches nothing of the thread",
  "ensureBound and settleWorkspace bring it in and home, however often they run",
].map((name) => `workspaces: ${name}`);

export const withoutWorkspaces: NonNullable<BackendSuiteOptions["deviations"]> = Object.fromEntries(
  [...WORKSPACES, "liveness: the workspace survives a death"].map((name) => [
    name,
    {
      reason: REASON,
      instead: async (stage) => {
        const key = stage.newKey();
        const first = await stage.make(key);
        const { sandbox } = await stage.attach(first.target);
        await sandbox.exec("echo lost > note");
        await stage.destroy(first);
        const second = await stage.make(key);
        stage.expect(second.created.workspace).toBe("new");
        const path = "/mnt/user-data/workspace/note";
        await stage.rejects((await stage.attach(second.target)).sandbox.files.stat(path), "file_not_found");
      },
    },
  ]),
);
