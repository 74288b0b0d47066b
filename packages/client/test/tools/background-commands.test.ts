/** Commands that outlast the call that started them: they go on, can be awaited by id, and end with their run. */

import { describe, expect, test } from "vitest";
import { sandlotTools } from "../../src/tools/index.ts";
import { openToolStage } from "./tool-stage.ts";

const idOf = (facts: Readonly<Record<string, unknown>>) => String(facts.commandId);

describe.each(["memory", "gateway", "local"] as const)("a command longer than its caller waits, on %s", (kind) => {
  test("goes on, in its own shell, and bash_output shows its result once", async () => {
    await using stage = await openToolStage(kind);
    await using tools = sandlotTools(stage.source, { thread: "t1", replyWithinMs: 300 });
    expect(tools.tools.map(({ name }) => name).slice(0, 3)).toEqual(["bash", "bash_output", "ls"]);
    await waitFor(tools, await tools.call("bash", { command: "true" }));
    const begun = await tools.call("bash", { command: "cd /tmp; sleep 2; X=kept; echo done", timeout_seconds: 600 });
    expect(begun).toMatchObject({ isError: false, code: null, facts: { status: "running" } });
    expect(begun.text).toContain(`command_id="${idOf(begun.facts)}"`);
    const other = await tools.call("bash", { command: "echo no" });
    expect(other).toMatchObject({ isError: true, code: "shell_busy" });
    expect((await tools.call("ls", { path: "/mnt/user-data" })).isError).toBe(false);
    const ended = await waitFor(tools, begun);
    expect(ended.text).toBe("done\n[working directory: /tmp]\n[exit code: 0]");
    expect(await tools.call("bash_output", { command_id: idOf(begun.facts) })).toMatchObject({
      isError: true,
      code: "unknown_command",
    });
    const next = await waitFor(tools, await tools.call("bash", { command: 'echo "$X"; pwd' }));
    // The memory backend, also behind the gateway here, keeps the working directory only.
    if (kind === "local") expect(next.text).toContain("kept\n/tmp");
    else expect(next.text).toContain("/tmp");
  });

  test("is stopped when asked, and its time limit holds", async () => {
    await using stage = await openToolStage(kind);
    await using tools = sandlotTools(stage.source, { thread: "t1", replyWithinMs: 300 });
    await waitFor(tools, await tools.call("bash", { command: "true" }));
    const begun = await tools.call("bash", { command: "echo begun already; sleep 30; touch late" });
    expect(begun.facts.output).toBe("begun already");
    const stopped = await tools.call("bash_output", { command_id: idOf(begun.facts), stop: true });
    expect(stopped).toMatchObject({ isError: false, facts: { status: "killed", output: "" } });
    const limited = await tools.call("bash", { command: "echo begun; sleep 30", timeout_seconds: 1 });
    const ended = await waitFor(tools, limited);
    expect(ended).toMatchObject({ isError: true, code: "command_timed_out", facts: { stdout: "begun\n" } });
  });

  test("shows in each answer what it has printed since the last one", async () => {
    await using stage = await openToolStage(kind);
    await using tools = sandlotTools(stage.source, { thread: "t1", replyWithinMs: 300 });
    await waitFor(tools, await tools.call("bash", { command: "true" }));
    const command = "echo one; echo oops >&2; while [ ! -e go ]; do sleep 0.05; done; echo two; sleep 1; echo three";
    const begun = await tools.call("bash", { command });
    expect(begun.facts.output).toBe("one\n[stderr]\noops");
    expect(begun.text).toMatch(/^one\n\[stderr\]\noops\n\[still running after /);
    const quiet = await tools.call("bash_output", { command_id: idOf(begun.facts) });
    expect(quiet.facts.output).toBe("");
    await tools.call("write_file", { path: "go", content: "x" });
    const next = await tools.call("bash_output", { command_id: idOf(begun.facts) });
    expect(next.facts.output).toBe("two");
    expect((await waitFor(tools, next)).text).toBe("one\ntwo\nthree\n[stderr]\noops\n[exit code: 0]");
  });

  test("shows no secret in what was printed until now, not in pieces either", async () => {
    await using stage = await openToolStage(kind);
    const secrets = { TOKEN: "sk-very-secret-value-1" };
    await using tools = sandlotTools(stage.source, { thread: "t1", replyWithinMs: 300, secrets });
    await waitFor(tools, await tools.call("bash", { command: "true" }));
    // A possible beginning of a secret is held back, so there is more before it.
    const command = "seq 1 200; printf 'sk-very-secret'; sleep 1; printf -- '-value-1 after'; seq 1 200; sleep 1";
    const begun = await tools.call("bash", { command });
    expect(begun.facts.output).toMatch(/^1\n2\n3\n/);
    let shown = begun.text;
    let output = begun;
    while (output.facts.status === "running") {
      output = await tools.call("bash_output", { command_id: idOf(begun.facts) });
      if (output.facts.status === "running") shown += output.text;
    }
    expect(shown).toContain("[redacted] after");
    expect(shown).not.toContain("sk-very");
  });

  test("a listener gets all of it, in order, while it runs; one that throws ends the call and the command", async () => {
    await using stage = await openToolStage(kind);
    await using tools = sandlotTools(stage.source, { thread: "t1" });
    const heard = { stdout: "", stderr: "" };
    let whileRunning = "";
    const call = tools.call(
      "bash",
      { command: "echo one; echo oops >&2; while [ ! -e go ]; do sleep 0.05; done; seq 2 300; printf end" },
      {
        onOutput: ({ stream, text }) => {
          heard[stream] += text;
        },
      },
    );
    await expect.poll(() => heard.stdout, { timeout: 20_000 }).toContain("one");
    whileRunning = heard.stdout;
    await tools.call("write_file", { path: "go", content: "x" });
    const { facts } = await call;
    // Where the shell is no session, the last line break is held back.
    expect(whileRunning.trimEnd()).toBe("one");
    expect(heard).toEqual({ stdout: facts.stdout, stderr: "oops\n" });
    const broken = tools.call(
      "bash",
      { command: "echo one; sleep 30; touch late" },
      {
        onOutput: () => {
          throw new Error("the screen is gone");
        },
      },
    );
    await expect(broken).rejects.toThrow("the screen is gone");
    expect((await tools.call("bash", { command: "echo free" })).text).toContain("free");
  });

  test("is not ended by cancelling a call that waits for it, and is ended by the end of the run", async () => {
    await using stage = await openToolStage(kind);
    {
      await using tools = sandlotTools(stage.source, { thread: "t1", replyWithinMs: 300 });
      await waitFor(tools, await tools.call("bash", { command: "true" }));
      const cancelled = new AbortController();
      const begun = await tools.call("bash", { command: "sleep 1.5; touch first; sleep 30" }, cancelled);
      // The call has returned, so its signal no longer matters.
      cancelled.abort();
      const waiting = new AbortController();
      const wait = tools.call("bash_output", { command_id: idOf(begun.facts) }, { signal: waiting.signal });
      waiting.abort(new Error("enough"));
      await expect(wait).rejects.toThrow("enough");
      await expect
        .poll(async () => (await tools.call("ls", { path: "/mnt/user-data/workspace" })).text, { timeout: 20_000 })
        .toContain("first");
    }
    await stage.expectNoLease();
  });
});

test("without a limit there is no bash_output, and a call waits for the end", async () => {
  await using stage = await openToolStage();
  await using tools = sandlotTools(stage.source, { thread: "t1" });
  expect(tools.tools.map(({ name }) => name)).not.toContain("bash_output");
  expect((await tools.call("bash", { command: "sleep 0.5; echo done" })).text).toBe("done\n[exit code: 0]");
});

/** Reads on until the command has ended, as a model would. */
async function waitFor(tools: ReturnType<typeof sandlotTools>, first: Awaited<ReturnType<typeof tools.call>>) {
  let output = first;
  while (output.facts.status === "running")
    output = await tools.call("bash_output", { command_id: idOf(output.facts) });
  return output;
}
