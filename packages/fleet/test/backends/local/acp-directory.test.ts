/** The directory behind `/mnt/acp-workspace` is reachable by that path, and listed nowhere else. */

import { afterAll, expect, it } from "vitest";
import { onStage, removeDaemon } from "./local-harness.ts";

afterAll(removeDaemon);

it.each(["/mnt/user-data", "/mnt/user-data/", "/mnt"])("is not in a list of %s", (path) =>
  onStage(async (stage) => {
    const sandbox = await stage.sandbox();
    await sandbox.exec("echo note > /mnt/acp-workspace/note && echo mine > /mnt/user-data/workspace/.acp-workspace");
    const { entries } = await sandbox.files.list(path, { depth: 4 });
    const paths = entries.map((entry) => entry.path);
    expect(paths.filter((one) => one.startsWith("/mnt/user-data/.acp-workspace"))).toEqual([]);
    // A file of that name elsewhere belongs to the agent.
    expect(paths).toContain("/mnt/user-data/workspace/.acp-workspace");
    expect(await sandbox.files.readText("/mnt/acp-workspace/note")).toBe("note\n");
  }),
);
