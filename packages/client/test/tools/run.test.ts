/** The lease of one run: when it is taken, that every path releases it, and what happens when the sandbox dies. */

import { describe, expect, test } from "vitest";
import { SandboxRun, sandlotTools } from "../../src/tools/index.ts";
import { openToolStage } from "./tool-stage.ts";

describe("the lease of a run", () => {
  test("is taken at the first use, shared by all, and given back at the end", async () => {
    await using stage = await openToolStage();
    const run = new SandboxRun(stage.fleet, { thread: "t1", purpose: "agent" });
    expect(stage.leaseCount()).toBe(0);
    await Promise.all([run.use((sandbox) => sandbox.exec("true")), run.use((sandbox) => sandbox.files.list("/mnt"))]);
    expect(stage.leaseCount()).toBe(1);
    expect(stage.events.find((event) => event.type === "lease-acquired")).toMatchObject({
      purpose: "agent",
      thread: "t1",
    });
    await run.end();
    await run.end();
    expect(stage.leaseCount()).toBe(0);
    await expect(run.use((sandbox) => sandbox.exec("true"))).rejects.toMatchObject({ code: "lease_released" });
  });

  test("is never taken by a run that uses nothing", async () => {
    await using stage = await openToolStage();
    await new SandboxRun(stage.fleet, { thread: "t1" }).end();
    expect(stage.events.filter(({ type }) => type === "lease-acquired")).toEqual([]);
  });

  test("is given back when the run is aborted, and the command ends", async () => {
    await using stage = await openToolStage();
    const abort = new AbortController();
    await using tools = sandlotTools(stage.fleet, { thread: "t1", signal: abort.signal });
    const call = tools.call("bash", { command: "sleep 60" });
    await expect.poll(() => stage.leaseCount()).toBe(1);
    abort.abort(new Error("the user went away"));
    await expect(call).rejects.toThrow("the user went away");
    await expect.poll(() => stage.leaseCount()).toBe(0);
  });

  test("stays when only one call is aborted", async () => {
    await using stage = await openToolStage();
    await using tools = sandlotTools(stage.fleet, { thread: "t1" });
    const abort = new AbortController();
    const call = tools.call("bash", { command: "sleep 60" }, { signal: abort.signal });
    await expect.poll(() => stage.leaseCount()).toBe(1);
    abort.abort(new Error("enough"));
    await expect(call).rejects.toThrow("enough");
    expect((await tools.call("bash", { command: "echo on" })).text).toContain("on\n[exit code: 0]");
    expect(stage.leaseCount()).toBe(1);
  });

  test("is given back when the run ends while it still waits for a sandbox", async () => {
    await using stage = await openToolStage();
    const run = new SandboxRun(stage.fleet, { thread: "t1" });
    const use = run.use((sandbox) => sandbox.exec("true"));
    const ended = run.end();
    await expect(use).rejects.toMatchObject({ code: "lease_released" });
    await ended;
    expect(stage.leaseCount()).toBe(0);
  });

  test("is given back after a while without a use, and taken again by the next", async () => {
    await using stage = await openToolStage();
    await using run = new SandboxRun(stage.fleet, { thread: "t1", idleReleaseMs: 20 });
    await run.use((sandbox) => sandbox.exec("echo kept > /tmp/kept"));
    await expect.poll(() => stage.leaseCount()).toBe(0);
    // It was parked, so it is the same sandbox, and there is nothing to report.
    expect(await run.use((sandbox) => sandbox.files.readText("/tmp/kept"))).toBe("kept\n");
    expect(run.takeNotice()).toBeNull();
  });

  test("is not given back while something runs", async () => {
    await using stage = await openToolStage();
    await using run = new SandboxRun(stage.fleet, { thread: "t1", idleReleaseMs: 10 });
    await run.use(async (sandbox) => {
      await sandbox.exec("sleep 0.2");
      expect(stage.leaseCount()).toBe(1);
    });
  });

  test("is given back after a failed step, but not under what is still at work", async () => {
    await using stage = await openToolStage();
    await using tools = sandlotTools(stage.fleet, { thread: "t1" });
    const working = tools.call("bash", { command: "sleep 0.2; echo finished" });
    await expect.poll(() => stage.leaseCount()).toBe(1);
    await tools.run.releaseWhenUnused();
    expect(stage.leaseCount()).toBe(1);
    expect((await working).text).toBe("finished\n[exit code: 0]");
    await expect.poll(() => stage.leaseCount()).toBe(0);
    await tools.call("bash", { command: "true" });
    await tools.run.releaseWhenUnused();
    expect(stage.leaseCount()).toBe(0);
  });

  test("each run of a thread has its own", async () => {
    await using stage = await openToolStage();
    await using agent = new SandboxRun(stage.fleet, { thread: "t1" });
    await using helper = new SandboxRun(stage.fleet, { thread: "t1" });
    const ids = await Promise.all([agent, helper].map((run) => run.use(async ({ id }) => id)));
    expect(ids[0]).toBe(ids[1]);
    expect(stage.leaseCount()).toBe(2);
    await helper.end();
    expect(stage.leaseCount()).toBe(1);
    expect(await agent.use(async (sandbox) => (await sandbox.exec("echo here")).stdout)).toBe("here\n");
  });
});

describe("a sandbox that dies", () => {
  test("is replaced by the next call, and the model reads once what was lost", async () => {
    await using stage = await openToolStage();
    await using tools = sandlotTools(stage.fleet, { thread: "t1" });
    await tools.call("bash", { command: "cd /tmp; echo lost > lost; echo kept > /mnt/user-data/workspace/kept" });
    await stage.kill("t1");
    const next = await tools.call("bash", { command: "cat /mnt/user-data/workspace/kept; ls /tmp" });
    expect(next.isError).toBe(false);
    expect(next.text).toMatch(
      /^\[The sandbox was replaced by a new one\. Lost: processes, temporary files\. Kept: installed packages, workspace\. The files are those of checkpoint [0-9a-z-]+\.\]\n\nkept\n/,
    );
    expect(next.text).not.toContain("lost\n");
    expect((await tools.call("bash", { command: "true" })).text).not.toContain("replaced");
    expect(stage.leaseCount()).toBe(1);
  });

  test("is reported to every run that used it, in any order of their calls", async () => {
    await using stage = await openToolStage();
    await using first = sandlotTools(stage.fleet, { thread: "t1" });
    await using second = sandlotTools(stage.fleet, { thread: "t1" });
    for (const tools of [first, second]) await tools.call("bash", { command: "true" });
    // The second holds nothing at that moment, and takes a lease on the sandbox that the first has made.
    await second.run.release();
    await stage.kill("t1");
    for (const tools of [first, second]) {
      expect((await tools.call("bash", { command: "true" })).text).toMatch(
        /^\[The sandbox was replaced by a new one\. Lost: processes, temporary files\./,
      );
      expect((await tools.call("bash", { command: "true" })).text).not.toContain("replaced");
    }
  });

  test("with its files is reported as such", async () => {
    await using stage = await openToolStage();
    await using tools = sandlotTools(stage.fleet, { thread: "t1" });
    await tools.call("bash", { command: "true" });
    await tools.run.release();
    await stage.fleet.destroy({ thread: "t1" }, { purge: true });
    expect((await tools.call("bash", { command: "true" })).text).toMatch(/Lost: .*, workspace\. Nothing was kept\.\]/);
  });

  test("under a command: that call says so, the next one works", async () => {
    await using stage = await openToolStage();
    await using tools = sandlotTools(stage.fleet, { thread: "t1" });
    await tools.call("bash", { command: "true" });
    const call = tools.call("bash", { command: "sleep 60" });
    await new Promise((resolve) => setTimeout(resolve, 50));
    await stage.kill("t1");
    const lost = await call;
    expect(lost).toMatchObject({ isError: true, code: "sandbox_lost" });
    expect(lost.text).toContain("it is not known how far it got");
    const next = await tools.call("ls", { path: "/mnt/user-data" });
    expect(next.isError).toBe(false);
    expect(next.text).toContain("The sandbox was replaced");
    expect(stage.leaseCount()).toBe(1);
  });

  test("under a read: it is made again, unasked", async () => {
    await using stage = await openToolStage();
    await using run = new SandboxRun(stage.fleet, { thread: "t1" });
    let attempts = 0;
    const answer = await run.use(
      async (sandbox) => {
        attempts += 1;
        if (attempts === 1) {
          const hanging = sandbox.exec("sleep 60");
          await new Promise((resolve) => setTimeout(resolve, 50));
          await stage.kill("t1");
          await hanging;
        }
        return (await sandbox.exec("echo again")).stdout;
      },
      { repeatable: true },
    );
    expect(answer).toBe("again\n");
    expect(attempts).toBe(2);
    expect(stage.leaseCount()).toBe(1);
  });
});

test("threads of other systems are mapped one to one", async () => {
  await using stage = await openToolStage();
  const seen = new Map<string, string>();
  for (const foreign of ["ok-1", "a/b", "a:b", "a_b", "ä", "x".repeat(65), "x".repeat(66), ""]) {
    await using run = new SandboxRun(stage.fleet, { thread: foreign });
    await run.use((sandbox) => sandbox.exec(`echo '${foreign}' > /mnt/user-data/workspace/name`));
    const acquired = stage.events.findLast((event) => event.type === "lease-acquired");
    const thread = acquired?.type === "lease-acquired" ? String(acquired.thread) : "";
    expect(thread).toMatch(/^[A-Za-z0-9_-]{1,64}$/);
    seen.set(thread, foreign);
    await run.end();
    // A caller that names the mapped thread is another user.
    await using other = new SandboxRun(stage.fleet, { thread });
    const read = other.use((sandbox) => sandbox.files.readText("/mnt/user-data/workspace/name"));
    if (thread === foreign) expect(await read).toBe(`${foreign}\n`);
    else await expect(read).rejects.toMatchObject({ code: "file_not_found" });
  }
  expect(seen.size).toBe(8);
});
