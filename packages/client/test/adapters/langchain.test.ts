/** The LangChain.js middleware: every way to end releases the lease; and where user and thread come from. */

import { AIMessage, createAgent, createMiddleware, fakeModel, ToolMessage, tool } from "langchain";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { sandlotMiddleware, sandlotTools } from "../../src/langchain/index.ts";
import { openToolStage } from "../tools/tool-stage.ts";
import { startLangChain as startAgent } from "./drivers/langchain.ts";

describe("the LangChain middleware", () => {
  test("takes no lease for an agent that calls no tool, and describes the sandbox to the model", async () => {
    await using stage = await openToolStage();
    const { script, run, model } = startAgent(sandlotMiddleware(stage.fleet), "t1");
    script.end();
    const state = await run;
    expect(stage.events.filter(({ type }) => type === "lease-acquired")).toEqual([]);
    expect(JSON.stringify(model.calls[0]?.messages)).toContain("/mnt/user-data/outputs");
    expect(Object.keys(state)).toEqual(["messages"]);
  });

  test("streams a command's output as it comes, in the stream mode `custom`", async () => {
    await using stage = await openToolStage();
    const model = fakeModel()
      .respondWithTools([
        { name: "bash", args: { command: "echo one; until [ -e go ]; do sleep 0.05; done; echo two" } },
      ])
      .respond(new AIMessage("done"));
    const agent = createAgent({ model, tools: [], middleware: [sandlotMiddleware(stage.fleet)] });
    const stream = await agent.stream(
      { messages: [{ role: "user", content: "go" }] },
      { configurable: { thread_id: "t1" }, streamMode: "custom" },
    );
    const heard: { readonly type: string; readonly tool: string; readonly stream: string; readonly text: string }[] =
      [];
    for await (const piece of stream) {
      if (heard.push(piece as (typeof heard)[number]) > 1) continue;
      expect(piece).toMatchObject({ type: "tool_output", tool: "bash", stream: "stdout" });
      await using lease = await stage.fleet.acquire({ thread: "t1" });
      await lease.sandbox.files.write("go", "");
    }
    expect(heard.map(({ text }) => text).join("")).toBe("one\ntwo\n");
    expect(heard.length).toBeGreaterThan(1);
  });

  test("gives the lease back when the model throws", async () => {
    await using stage = await openToolStage();
    const { script, run } = startAgent(sandlotMiddleware(stage.fleet), "t1");
    await script.call("bash", { command: "true" });
    expect(stage.leaseCount()).toBe(1);
    script.fail(new Error("model is down"));
    await expect(run).rejects.toThrow("model is down");
    expect(stage.leaseCount()).toBe(0);
  });

  test("gives the lease back when the invocation is aborted, in a tool and in the model", async () => {
    await using stage = await openToolStage();
    for (const command of ["sleep 60", null]) {
      const abort = new AbortController();
      const { script, run } = startAgent(sandlotMiddleware(stage.fleet), "t1", abort.signal);
      await script.call("bash", { command: "true" });
      if (command !== null) script.call("bash", { command }).catch(() => undefined);
      expect(stage.leaseCount()).toBe(1);
      abort.abort();
      await expect(run).rejects.toThrow();
      await expect.poll(() => stage.leaseCount()).toBe(0);
    }
  });

  test("lets a command finish when another tool of the same step throws", async () => {
    await using stage = await openToolStage();
    const broken = tool(
      async () => {
        await expect.poll(() => stage.leaseCount()).toBe(1);
        throw new Error("the other tool is broken");
      },
      { name: "broken", description: "Breaks.", schema: z.object({}) },
    );
    const model = fakeModel()
      .respondWithTools([
        { name: "bash", args: { command: "sleep 0.3; echo finished" } },
        { name: "broken", args: {} },
      ])
      .respond(new AIMessage("done"));
    // Outside of ours, so that ours sees the error and cannot know that the run goes on.
    const forgiving = createMiddleware({
      name: "forgiving",
      wrapToolCall: async (request, handler) => {
        try {
          return await handler(request);
        } catch (error) {
          return new ToolMessage({ tool_call_id: request.toolCall.id ?? "", content: String(error) });
        }
      },
    });
    const agent = createAgent({ model, tools: [broken], middleware: [forgiving, sandlotMiddleware(stage.fleet)] });
    const { messages } = await agent.invoke(
      { messages: [{ role: "user", content: "go" }] },
      { configurable: { thread_id: "t1" } },
    );
    const told = messages.filter(({ type }) => type === "tool").map(({ text }) => text);
    expect(told).toEqual(["finished\n[exit code: 0]", "Error: the other tool is broken"]);
    expect(stage.leaseCount()).toBe(0);
  });

  test("keeps users apart, and maps thread ids that are not ours", async () => {
    await using stage = await openToolStage();
    const agent = (user: string) => {
      const model = fakeModel()
        .respondWithTools([{ name: "bash", args: { command: `ls; echo ${user} > who` } }])
        .respond(new AIMessage("done"));
      return createAgent({ model, tools: [], middleware: [sandlotMiddleware(stage.fleet)] }).invoke(
        { messages: [{ role: "user", content: "go" }] },
        { configurable: { thread_id: "chat/42: hello", user_id: user } },
      );
    };
    const first = await agent("ann@example.test");
    const second = await agent("bob@example.test");
    for (const { messages } of [first, second]) expect(messages.at(-2)?.content).toBe("(no output)\n[exit code: 0]");
    const acquired = stage.events.filter((event) => event.type === "lease-acquired");
    expect(acquired.map(({ user, thread }) => [user, thread])).toEqual([
      [
        expect.stringMatching(/^ann_example_test_x[0-9a-f]{32}$/),
        expect.stringMatching(/^chat_42_hello_x[0-9a-f]{32}$/),
      ],
      [expect.stringMatching(/^bob_example_test_x/), expect.stringMatching(/^chat_42_hello_x/)],
    ]);
  });

  test("refuses an invocation without a thread", async () => {
    await using stage = await openToolStage();
    const agent = createAgent({ model: fakeModel(), tools: [], middleware: [sandlotMiddleware(stage.fleet)] });
    await expect(agent.invoke({ messages: [{ role: "user", content: "go" }] })).rejects.toThrow(
      "configurable.thread_id",
    );
  });

  test("offers the tools alone, too", async () => {
    await using stage = await openToolStage();
    await using set = sandlotTools(stage.fleet, { thread: "t1", tools: ["bash"] });
    expect(set.tools.map(({ name }) => name)).toEqual(["bash"]);
    const model = fakeModel()
      .respondWithTools([{ name: "bash", args: { command: "echo hi" } }])
      .respond(new AIMessage("done"));
    const agent = createAgent({ model, tools: [...set.tools] });
    const { messages } = await agent.invoke({ messages: [{ role: "user", content: "go" }] });
    expect(messages.at(-2)?.content).toBe("hi\n[exit code: 0]");
  });
});
