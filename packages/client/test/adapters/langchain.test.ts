/** The tools through agents of LangChain.js, driven by its fake model; and that every way to end gives the lease back. */

import { AIMessage, type BaseMessage, createAgent, createMiddleware, fakeModel, type ToolMessage } from "langchain";
import { describe, expect, test, vi } from "vitest";
import { sandlotMiddleware, sandlotTools } from "../../src/langchain/index.ts";
import { openToolStage } from "../tools/tool-stage.ts";
import { Puppet } from "./puppet.ts";
import { describeTools, type ToolReply } from "./tool-suite.ts";

/** An agent that does what the puppet is told. The lease discipline is that of the middleware under test. */
function startAgent(middleware: ReturnType<typeof sandlotMiddleware>, thread: string, signal?: AbortSignal) {
  const puppet = new Puppet<ToolReply>();
  const model = fakeModel();
  const puppeteer = createMiddleware({
    name: "puppeteer",
    wrapModelCall: async (request, handler) => {
      const last = request.messages.at(-1) as BaseMessage;
      const move = await puppet.turn(last.type === "tool" ? replyOf(last as ToolMessage) : null);
      if (move.type === "call") model.respondWithTools([{ name: move.name, args: move.input }]);
      else model.respond(move.type === "fail" ? move.error : new AIMessage("done"));
      return handler(request);
    },
  });
  const agent = createAgent({ model, tools: [], middleware: [middleware, puppeteer] });
  const run = agent.invoke(
    { messages: [{ role: "user", content: "go" }] },
    { configurable: { thread_id: thread }, recursionLimit: 1_000, ...(signal ? { signal } : {}) },
  );
  puppet.watch(run);
  return { puppet, run, model };
}

function replyOf({ content, status }: ToolMessage): ToolReply {
  const blocks = typeof content === "string" ? [{ type: "text", text: content }] : content;
  return {
    text: blocks.map((block) => (block.type === "text" ? String(block.text) : "")).join(""),
    isError: status === "error",
    images: blocks.flatMap((block) => {
      const { type, mimeType, data } = block as { type: string; mimeType?: string; data?: string };
      return type === "image" ? [{ mimeType: String(mimeType), base64: String(data) }] : [];
    }),
  };
}

describeTools({
  name: "LangChain",
  async open(stage, thread, policy) {
    const { puppet, run } = startAgent(sandlotMiddleware(stage.fleet, policy), thread);
    return {
      call: (tool, input) => puppet.call(tool, input),
      async [Symbol.asyncDispose]() {
        puppet.end();
        await run;
      },
    };
  },
});

describe("the LangChain middleware", () => {
  test("takes no lease for an agent that calls no tool, and tells the model of its sandbox", async () => {
    await using stage = await openToolStage();
    const { puppet, run, model } = startAgent(sandlotMiddleware(stage.fleet), "t1");
    puppet.end();
    const state = await run;
    expect(stage.events.filter(({ type }) => type === "lease-acquired")).toEqual([]);
    expect(JSON.stringify(model.calls[0]?.messages)).toContain("/mnt/user-data/outputs");
    expect(Object.keys(state)).toEqual(["messages"]);
  });

  test("gives the lease back when the model throws", async () => {
    await using stage = await openToolStage();
    const { puppet, run } = startAgent(sandlotMiddleware(stage.fleet), "t1");
    await puppet.call("bash", { command: "true" });
    expect(stage.leaseCount()).toBe(1);
    puppet.fail(new Error("model is down"));
    await expect(run).rejects.toThrow("model is down");
    expect(stage.leaseCount()).toBe(0);
  });

  test("gives the lease back when the invocation is aborted, in a tool and in the model", async () => {
    await using stage = await openToolStage();
    for (const command of ["sleep 60", null]) {
      const abort = new AbortController();
      const { puppet, run } = startAgent(sandlotMiddleware(stage.fleet), "t1", abort.signal);
      await puppet.call("bash", { command: "true" });
      if (command !== null) puppet.call("bash", { command }).catch(() => undefined);
      expect(stage.leaseCount()).toBe(1);
      abort.abort();
      await expect(run).rejects.toThrow();
      await vi.waitFor(() => expect(stage.leaseCount()).toBe(0));
    }
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
