/** Our tools on versions 6 and 7 of the AI SDK, with its mock models. */

import { generateText, isStepCount } from "ai";
import { MockLanguageModelV4 } from "ai/test";
import { generateText as generateText6, stepCountIs as stepCountIs6 } from "ai-6";
import { MockLanguageModelV3 } from "ai-6/test";
import { sandlotTools } from "../../../src/ai-sdk/index.ts";
import type { ToolPolicy } from "../../../src/tools/index.ts";
import type { ToolStage } from "../../tools/tool-stage.ts";
import { puppeteer } from "../ai-puppeteer.ts";
import { Puppet } from "../puppet.ts";
import type { ToolDriver, ToolReply } from "../tool-suite.ts";

export function startAiSdk7({ source }: ToolStage, thread: string, policy: ToolPolicy = {}, signal?: AbortSignal) {
  const puppet = new Puppet<ToolReply>();
  const turn = puppeteer(puppet);
  const model = new MockLanguageModelV4({ doGenerate: (({ prompt }: { prompt: never }) => turn(prompt)) as never });
  const set = sandlotTools(source, { thread, ...policy, ...(signal ? { signal } : {}) });
  const run = generateText({
    ...{ model, tools: set.tools, prompt: "go", stopWhen: isStepCount(1_000), maxRetries: 0 },
    ...(signal ? { abortSignal: signal } : {}),
  }).finally(() => set.end());
  puppet.watch(run);
  return { puppet, run };
}

function startAiSdk6({ source }: ToolStage, thread: string, policy: ToolPolicy = {}) {
  const puppet = new Puppet<ToolReply>();
  const turn = puppeteer(puppet);
  const model = new MockLanguageModelV3({ doGenerate: (({ prompt }: { prompt: never }) => turn(prompt)) as never });
  const set = sandlotTools(source, { thread, sdkVersion: 6, ...policy });
  const run = generateText6({
    model,
    // Both versions cannot be `ai` at once, so one of them has to believe us.
    tools: set.tools as never,
    prompt: "go",
    stopWhen: stepCountIs6(1_000) as never,
    maxRetries: 0,
  }).finally(() => set.end());
  puppet.watch(run);
  return { puppet, run };
}

type Start = (...args: Parameters<typeof startAiSdk6>) => {
  readonly puppet: Puppet<ToolReply>;
  readonly run: Promise<unknown>;
};

function driver(name: string, start: Start): ToolDriver {
  return {
    name,
    async open(stage, thread, policy) {
      const { puppet, run } = start(stage, thread, policy);
      return {
        call: (tool, input) => puppet.call(tool, input),
        async [Symbol.asyncDispose]() {
          puppet.end();
          await run;
        },
      };
    },
  };
}

export const aiSdkDrivers: readonly ToolDriver[] = [driver("AI SDK 7", startAiSdk7), driver("AI SDK 6", startAiSdk6)];
