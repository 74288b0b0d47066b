/**
 * Agents of the OpenAI Agents SDK with its scripted model, which uses the SDK's own shell and file tools as the script
 * directs.
 */

import { run, setTracingDisabled } from "@openai/agents";
import { filesystem, type Manifest, SandboxAgent, shell } from "@openai/agents/sandbox";
import { assistantMessage, functionCall, modelResponder, ScriptedModel } from "@openai/agents/testing";
import { expect } from "vitest";
import { SandlotSandboxClient } from "../../../src/openai-agents/index.ts";
import { ModelScript } from "../model-script.ts";
import type { SandboxDriver } from "../sandbox-suite.ts";

setTracingDisabled(true);

export function startOpenAi(client: SandlotSandboxClient, thread: string, signal?: AbortSignal, manifest?: Manifest) {
  const script = new ModelScript<string>();
  let calls = 0;
  const respond = modelResponder(async ({ request }) => {
    const last = Array.isArray(request.input) ? request.input.at(-1) : undefined;
    const isResult = last?.type === "function_call_result" || last?.type === "apply_patch_call_output";
    const move = await script.turn(isResult ? textOf(last.output) : null);
    if (move.type === "fail") throw move.error;
    if (move.type === "end") return [assistantMessage("done")];
    const callId = `call-${++calls}`;
    if (move.name === "apply_patch")
      return [{ type: "apply_patch_call", callId, status: "completed", operation: move.input as never }];
    return [functionCall(move.name, move.input, { callId })];
  });
  const model = new ScriptedModel(Array.from({ length: 100 }, () => respond));
  const agent = new SandboxAgent({ name: "coder", model, capabilities: [shell(), filesystem()] });
  const running = run(agent, "go", {
    maxTurns: 100,
    sandbox: { client, options: { thread, ...(signal ? { signal } : {}) }, ...(manifest ? { manifest } : {}) },
    ...(signal ? { signal } : {}),
  });
  script.watch(running);
  return { script, running };
}

function textOf(output: unknown): string {
  if (typeof output === "string") return output;
  const { text, type } = output as { text?: string; type?: string };
  return text ?? `${type}: ${JSON.stringify(output)}`;
}

const lines = (text: string, sign: string) =>
  text
    .replace(/\n$/, "")
    .split("\n")
    .map((line) => sign + line)
    .join("\n");

export const openAiDriver: SandboxDriver = {
  name: "OpenAI Agents",
  async open({ source }, thread, signal) {
    const { script, running } = startOpenAi(new SandlotSandboxClient(source), thread, signal);
    return {
      run: (cmd) => script.call("exec_command", { cmd }),
      write: (path, content) => script.call("apply_patch", { type: "create_file", path, diff: lines(content, "+") }),
      read: (path) => script.call("exec_command", { cmd: `cat ${path}` }),
      edit: (path, before, after) =>
        script.call("apply_patch", {
          type: "update_file",
          path,
          diff: `@@\n${lines(before, "-")}\n${lines(after, "+")}`,
        }),
      async fail() {
        script.fail(new Error("model is down"));
        await expect(running).rejects.toThrow("model is down");
      },
      async [Symbol.asyncDispose]() {
        script.end();
        await running;
      },
    };
  },
};
