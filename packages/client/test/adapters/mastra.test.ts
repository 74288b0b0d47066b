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
    const long = await sandbox.executeCommand("printf 'äöü%.0s' 1 2 3", [], { maxRetainedBytes: 5 });
    expect(long).toMatchObject({ stdout: "öü", stdoutTruncated: true, stdoutDroppedBytes: 14 });
    // An object without checkpoints does nothing and says so.
    await sandbox.snapshot();
    expect(sandbox.supportsCheckpoints).toBe(false);
    expect(sandbox.getInfo()).toMatchObject({
      ...{ id: "sandlot-t1", provider: "sandlot", status: "running", createdAt: expect.any(Date) },
      metadata: { thread: "t1", user: null, generation: expect.any(Number) },
    });
  });

  test("takes files with modes, variables for every command, and makes siblings for other threads", async () => {
    await using stage = await openToolStage();
    await using sandbox = new SandlotWorkspaceSandbox(stage.fleet, { thread: "t1" });
    await sandbox.writeFiles([
      { path: "run.sh", content: "echo $WHO", mode: 0o750 },
      { path: "d/raw", content: Buffer.from([0, 255]) },
    ]);
    const { mode } = await sandbox.filesystem.readFile("d/raw").then(async () => {
      await using lease = await stage.fleet.acquire({ thread: "t1" });
      return lease.sandbox.files.stat("/mnt/user-data/workspace/run.sh");
    });
    expect(mode & 0o777).toBe(0o750);
    await expect(sandbox.writeFiles([{ path: "x", content: "", mode: 0 }])).rejects.toThrow(/mode/i);
    const write = sandbox.writeFiles([{ path: "x", content: "" }], { abortSignal: AbortSignal.abort() });
    await expect(write).rejects.toMatchObject({ name: "SandboxAbortError" });
    sandbox.setEnv((environment) => ({ ...environment, WHO: "me" }));
    expect((await sandbox.executeCommand("sh run.sh")).stdout).toBe("me\n");
    expect((await sandbox.executeCommand("sh run.sh", [], { env: { WHO: "you" } })).stdout).toBe("you\n");
    await using sibling = sandbox.clone({ id: "t2" });
    expect((await sibling.executeCommand("echo $WHO; ls")).stdout).toBe("me\n");
    expect(sibling.id).toBe("sandlot-t2");
  });

  test("keeps processes in the background, which can be read, fed and ended, and end with the lease", async () => {
    await using stage = await openToolStage();
    {
      await using sandbox = new SandlotWorkspaceSandbox(stage.fleet, { thread: "t1" });
      sandbox.setEnv(() => ({ WHO: "me" }));
      const seen: string[] = [];
      const echo = await sandbox.processes.spawn("echo $WHO; read line; echo got $line; exit 3", {
        onStdout: (text) => seen.push(text),
      });
      expect(await sandbox.processes.list()).toMatchObject([{ pid: echo.pid, running: true }]);
      await echo.sendStdin("a line\n");
      expect(await echo.wait()).toMatchObject({ exitCode: 3, success: false, stdout: "me\ngot a line\n" });
      expect([seen.join(""), echo.exitCode, echo.stdout]).toEqual(["me\ngot a line\n", 3, "me\ngot a line\n"]);
      const eof = await sandbox.processes.spawn("cat; echo end");
      await eof.closeStdin();
      expect((await eof.wait()).stdout).toBe("end\n");
      const unread = await sandbox.processes.spawn("cat; echo none", { stdinMode: "ignore" });
      expect((await unread.wait()).stdout).toBe("none\n");
      const slow = await sandbox.processes.spawn("sleep 60");
      expect(await sandbox.processes.kill(slow.pid)).toBe(true);
      expect(await sandbox.processes.kill("none")).toBe(false);
      const limited = await sandbox.processes.spawn("sleep 60", { timeout: 50 });
      expect(await limited.wait()).toMatchObject({ timedOut: true, exitCode: 124 });
      const abort = new AbortController();
      const aborted = await sandbox.processes.spawn("sleep 60", { abortSignal: abort.signal });
      abort.abort();
      expect(await aborted.wait()).toMatchObject({ killed: true, success: false });
      await sandbox.processes.spawn("sleep 61");
    }
    expect(stage.leaseCount()).toBe(0);
    await using lease = await stage.fleet.acquire({ thread: "t1" });
    const running = (await lease.sandbox.execs.list()).filter(({ status }) => status === "running");
    expect(running).toEqual([]);
  });

  test("a process whose sandbox is lost has ended", async () => {
    await using stage = await openToolStage();
    await using sandbox = new SandlotWorkspaceSandbox(stage.fleet, { thread: "t1" });
    const server = await sandbox.processes.spawn("sleep 60");
    await stage.kill("t1");
    expect(await server.wait()).toMatchObject({ killed: true, success: false, exitCode: 137 });
    expect((await sandbox.executeCommand("echo on")).stdout).toBe("on\n");
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
      { name: "a", type: "directory", size: 0 },
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
    await expect(files.rmdir("none")).rejects.toMatchObject({ name: "DirectoryNotFoundError" });
    await expect(files.readdir("none")).rejects.toMatchObject({ name: "DirectoryNotFoundError" });
    await expect(files.writeFile("no/f", "x", { recursive: false })).rejects.toMatchObject({
      name: "DirectoryNotFoundError",
    });
    await expect(files.mkdir("no/d", { recursive: false })).rejects.toMatchObject({ name: "DirectoryNotFoundError" });
    await files.writeFile("new", "x", { expectedMtime: new Date(0) });
    await expect(files.mkdir("new")).rejects.toMatchObject({ name: "FileExistsError" });
    await files.mkdir("x/y");
    await files.writeFile("x/y/.f.ts", "1");
    await sandbox.executeCommand("ln -s x/y link; ln -s nowhere broken");
    expect(await files.stat("link")).toMatchObject({ type: "directory", size: 0, name: "link" });
    expect([await files.exists("link"), await files.exists("broken")]).toEqual([true, false]);
    expect(await files.realpath("link/.f.ts")).toBe("/mnt/user-data/workspace/x/y/.f.ts");
    expect(await files.readdir("/mnt/user-data/workspace")).toContainEqual({
      ...{ name: "link", type: "directory", size: 0, isSymlink: true },
    });
    await expect(files.copyFile("x", "z")).rejects.toMatchObject({ name: "IsDirectoryError" });
    await files.copyFile("x", "z", { recursive: true });
    expect((await files.walk("z", { includeHidden: true })).map(({ path }) => path)).toEqual(["y", "y/.f.ts"]);
    expect((await files.walk("z")).map(({ path }) => path)).toEqual(["y"]);
    expect((await files.readdir(".", { recursive: true, maxDepth: 0 })).every(({ name }) => !name.includes("/"))).toBe(
      true,
    );
    await files.moveFile("new", "far/away/new");
    expect(await files.readFile("far/away/new", { encoding: "utf8" })).toBe("x");
    expect(files.getInfo()).toMatchObject({ provider: "sandlot", readOnly: false, status: "ready" });
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
      const { script, run, call } = startAgent(workspace, () => workspaces.end(context), undefined, context);
      expect(await call("mastra_workspace_execute_command", { command: "ls | wc -l; touch mark" })).toMatch(/\b0\b/);
      expect(await call("mastra_workspace_write_file", { path: "other", content: "x" })).toContain("other");
      script.end();
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
