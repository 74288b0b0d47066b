/**
 * Agents of LangChain.js with its fake model, which follows the script. The middleware takes and releases the leases.
 */

import { AIMessage, type BaseMessage, createAgent, createMiddleware, fakeModel, type ToolMessage } from "langchain";
import { sandlotMiddleware } from "../../../src/langchain/index.ts";
import { ModelScript } from "../model-script.ts";
import type { ToolDriver, ToolReply } from "../tool-suite.ts";

type Middleware = ReturnType<typeof sandlotMiddleware>;

export function startLangChain(middleware: Middleware, thread: string, signal?: AbortSignal) {
  const script = new ModelScript<ToolReply>();
  const model = fakeModel();
  const puppeteer = createMiddleware({
    name: "puppeteer",
    wrapModelCall: async (request, handler) => {
      const last = request.messages.at(-1) as BaseMessage;
      const move = await script.turn(last.type === "tool" ? replyOf(last as ToolMessage) : null);
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
  script.watch(run);
  return { script, run, model };
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

export const langChainDriver: ToolDriver = {
  name: "LangChain",
  async open({ source }, thread, policy) {
    const { script, run } = startLangChain(sandlotMiddleware(source, policy), thread);
    return {
      call: (tool, input) => script.call(tool, input),
      async [Symbol.asyncDispose]() {
        script.end();
        await run;
      },
    };
  },
};
