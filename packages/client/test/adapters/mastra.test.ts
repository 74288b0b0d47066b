/** Mastra workspaces over Sandlot, driven by a mock model through Mastra's own workspace tools. */

import { RequestContext } from "@mastra/core/request-context";
import { Workspace } from "@mastra/core/workspace";
import { describe, expect, test } from "vitest";
import { SandlotWorkspaceSandbox, sandlotWorkspaces } from "../../src/mastra/index.ts";
import { openToolStage } from "../tools/tool-stage.ts";
import { startMastra as startAgent } from "./drivers/mastra.ts";

describe("the Mastra sandbox", () => {
  test("runs commands with arguments, streams, limits and signals", async () => {
    await using stage = await openToolStage();
    await using sandbox = new SandlotWorkspaceSandbox(stage.fleet, { thread: "t1" });
    expect(sandbox.status).toBe("ready");
    expect(await sandbox.executeCommand("printf", ["%s|", "a b", "$HOME"])).toMatchObject({
      success: true,
      exitCode: 0,
      stdout: "a b|$HOME|",
    });
    expect(sandbox.status).toBe("running");
    const seen: string[] = [];
    const streamed = await sandbox.executeCommand("echo out; echo err >&2; exit 3", [], {
      cwd: "/tmp",
      env: { X: "y", NONE: undefined },
      onStdout: (text) => seen.push(text),
      onStderr: (text) => seen.push(text),
    });
    expect(streamed).toMatchObject({ success: false, exitCode: 3, stdout: "out\n", stderr: "err\n" });
    expect(seen.toSorted()).toEqual(["err\n", "out\n"]);
    expect(await sandbox.executeCommand("sleep 9", [], { timeout: 50 })).toMatchObject({
      timedOut: true,
      exitCode: 124,
    });
    await expect(sandbox.executeCommand("sleep 9", [], { abortSignal: AbortSignal.timeout(50) })).rejects.toThrow();
    await sandbox.stop();
    expect(stage.leaseCount()).toBe(0);
    expect((await sandbox.executeCommand("echo again")).stdout).toBe("again\n");
    await expect(sandbox.snapshot()).rejects.toMatchObject({ code: "capability_missing" });
  });

  test("has the files that commands see, and Mastra's errors", async () => {
    await using stage = await openToolStage();
    await using sandbox = new SandlotWorkspaceSandbox(stage.fleet, { thread: "t1" });
    const files = sandbox.filesystem;
    await files.writeFile("a/b.txt", "one\n");
    await files.appendFile("a/b.txt", "two\n");
    expect((await sandbox.executeCommand("cat a/b.txt")).stdout).toBe("one\ntwo\n");
    expect(await files.readFile("a/b.txt", { encoding: "utf8" })).toBe("one\ntwo\n");
    expect(Buffer.isBuffer(await files.readFile("/mnt/user-data/workspace/a/b.txt"))).toBe(true);
    await files.copyFile("a/b.txt", "c.md");
    await files.moveFile("c.md", "d.md");
    expect(await files.readdir(".", { recursive: true })).toEqual([
      { name: "a", type: "directory", size: expect.any(Number) },
      { name: "a/b.txt", type: "file", size: 8 },
      { name: "d.md", type: "file", size: 8 },
    ]);
    expect((await files.readdir(".", { extension: "md" })).map(({ name }) => name)).toEqual(["a", "d.md"]);
    const { modifiedAt } = await files.stat("d.md");
    await files.writeFile("d.md", "new", { expectedMtime: modifiedAt });
    await expect(files.writeFile("d.md", "x", { expectedMtime: new Date(0) })).rejects.toThrow(
      /modified|stale|changed/i,
    );
    await expect(files.writeFile("d.md", "x", { overwrite: false })).rejects.toMatchObject({ name: "FileExistsError" });
    await expect(files.readFile("none")).rejects.toMatchObject({ name: "FileNotFoundError" });
    await expect(files.deleteFile("a")).rejects.toMatchObject({ name: "IsDirectoryError" });
    await expect(files.rmdir("a")).rejects.toMatchObject({ name: "DirectoryNotEmptyError" });
    await expect(files.rmdir("d.md")).rejects.toMatchObject({ name: "NotDirectoryError" });
    await files.rmdir("a", { recursive: true });
    await files.rmdir("a", { recursive: true, force: true });
    await files.deleteFile("d.md");
    expect([await files.exists("d.md"), await files.exists(".")]).toEqual([false, true]);
    await files.mkdir("x/y");
    expect(await files.stat("x/y")).toMatchObject({ type: "directory", name: "y" });
  });

  test("is found through Mastra's request context, for each thread its own", async () => {
    await using stage = await openToolStage();
    const workspaces = sandlotWorkspaces(stage.fleet);
    const workspace = new Workspace({ sandbox: workspaces.sandbox, filesystem: workspaces.filesystem });
    for (const thread of ["t1", "t2"]) {
      const context = new RequestContext();
      context.set("mastra__threadId", thread);
      context.set("mastra__resourceId", "ann");
      const { puppet, run, call } = startAgent(workspace, () => workspaces.end(context), undefined, context);
      expect(await call("mastra_workspace_execute_command", { command: "ls | wc -l; touch mark" })).toMatch(/\b0\b/);
      expect(await call("mastra_workspace_write_file", { path: "other", content: "x" })).toContain("other");
      puppet.end();
      await run;
      expect(stage.leaseCount()).toBe(0);
    }
    const acquired = stage.events.filter((event) => event.type === "lease-acquired");
    expect(acquired.map(({ user, thread }) => [user, thread])).toEqual([
      ["ann", "t1"],
      ["ann", "t2"],
    ]);
    expect(() => workspaces.sandbox({ requestContext: new RequestContext() })).toThrow("names no thread");
  });
});
