/** Deep agents with LangChain's fake model, which uses deepagents' own tools as the script directs. */

import { createDeepAgent } from "deepagents";
import { AIMessage, type BaseMessage, createMiddleware, fakeModel, type ToolMessage } from "langchain";
import { expect } from "vitest";
import { SandlotBackend } from "../../../src/deepagents/index.ts";
import { ModelScript } from "../model-script.ts";
import type { SandboxDriver } from "../sandbox-suite.ts";

export function startDeepAgent(backend: SandlotBackend, thread: string, signal?: AbortSignal) {
  const script = new ModelScript<string>();
  const model = fakeModel();
  const puppeteer = createMiddleware({
    name: "puppeteer",
    wrapModelCall: async (request, handler) => {
      const last = request.messages.at(-1) as BaseMessage;
      const move = await script.turn(last.type === "tool" ? String((last as ToolMessage).text) : null);
      if (move.type === "call") model.respondWithTools([{ name: move.name, args: move.input }]);
      else model.respond(move.type === "fail" ? move.error : new AIMessage("done"));
      return handler(request);
    },
  });
  const agent = createDeepAgent({ model, backend, middleware: [backend.middleware, puppeteer] });
  const run = agent.invoke(
    { messages: [{ role: "user", content: "go" }] },
    { configurable: { thread_id: thread }, recursionLimit: 1_000, ...(signal ? { signal } : {}) },
  );
  script.watch(run);
  return { script, run };
}

export const deepAgentsDriver: SandboxDriver = {
  name: "deepagents",
  async open({ source }, thread, signal) {
    const { script, run } = startDeepAgent(new SandlotBackend(source), thread, signal);
    return {
      run: (command) => script.call("execute", { command }),
      write: (file_path, content) => script.call("write_file", { file_path, content }),
      read: (file_path) => script.call("read_file", { file_path }),
      edit: (file_path, old_string, new_string) => script.call("edit_file", { file_path, old_string, new_string }),
      async fail() {
        script.fail(new Error("model is down"));
        await expect(run).rejects.toThrow("model is down");
      },
      async [Symbol.asyncDispose]() {
        script.end();
        await run;
      },
    };
  },
};
