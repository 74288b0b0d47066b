/** Mastra agents with a mock model, which uses Mastra's own workspace tools as the script directs. */

import { Agent } from "@mastra/core/agent";
import type { RequestContext } from "@mastra/core/request-context";
import { Workspace } from "@mastra/core/workspace";
import { MockLanguageModelV4 } from "ai/test";
import { SandlotWorkspaceSandbox } from "../../../src/mastra/index.ts";
import { puppeteer } from "../ai-puppeteer.ts";
import { ModelScript } from "../model-script.ts";
import type { SandboxDriver } from "../sandbox-suite.ts";
import type { ToolReply } from "../tool-suite.ts";

export function startMastra(
  workspace: Workspace,
  end: () => Promise<void>,
  signal?: AbortSignal,
  requestContext?: RequestContext,
) {
  const script = new ModelScript<ToolReply>();
  const turn = puppeteer(script);
  const model = new MockLanguageModelV4({ doGenerate: (({ prompt }: { prompt: never }) => turn(prompt)) as never });
  const agent = new Agent({
    ...{ id: "coder", name: "coder", instructions: "code", maxRetries: 0 },
    model: model as never,
    workspace,
  });
  const run = agent
    .generate("go", {
      maxSteps: 100,
      ...(signal ? { abortSignal: signal } : {}),
      ...(requestContext ? { requestContext } : {}),
    })
    .finally(end);
  script.watch(run);
  const call = async (tool: string, input: Record<string, unknown>) => (await script.call(tool, input)).text;
  return { script, run, call };
}

export const mastraDriver: SandboxDriver = {
  name: "Mastra",
  async open({ source }, thread, signal) {
    const sandbox = new SandlotWorkspaceSandbox(source, { thread, ...(signal ? { signal } : {}) });
    const workspace = new Workspace({ sandbox, filesystem: sandbox.filesystem });
    const { script, run, call } = startMastra(workspace, () => sandbox.destroy(), signal);
    return {
      run: (command) => call("mastra_workspace_execute_command", { command }),
      write: (path, content) => call("mastra_workspace_write_file", { path, content }),
      read: (path) => call("mastra_workspace_read_file", { path }),
      edit: async (path, old_string, new_string) => {
        await call("mastra_workspace_read_file", { path });
        return call("mastra_workspace_edit_file", { path, old_string, new_string });
      },
      async fail() {
        script.fail(new Error("model is down"));
        await run.catch(() => undefined);
      },
      async [Symbol.asyncDispose]() {
        script.end();
        await run;
      },
    };
  },
};
