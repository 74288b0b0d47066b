/** Our tools on versions 6 and 7 of the AI SDK, with its mock models. */

import { generateText, isStepCount } from "ai";
import { MockLanguageModelV4 } from "ai/test";
import { generateText as generateText6, stepCountIs as stepCountIs6 } from "ai-6";
import { MockLanguageModelV3 } from "ai-6/test";
import { sandlotTools } from "../../../src/ai-sdk/index.ts";
import type { ToolPolicy } from "../../../src/tools/index.ts";
import type { ToolStage } from "../../tools/tool-stage.ts";
import { puppeteer } from "../ai-puppeteer.ts";
import { ModelScript } from "../model-script.ts";
import type { ToolDriver, ToolReply } from "../tool-suite.ts";

export function startAiSdk7({ source }: ToolStage, thread: string, policy: ToolPolicy = {}, signal?: AbortSignal) {
  const script = new ModelScript<ToolReply>();
  const turn = puppeteer(script);
  const model = new MockLanguageModelV4({ doGenerate: (({ prompt }: { prompt: never }) => turn(prompt)) as never });
  const set = sandlotTools(source, { thread, ...policy, ...(signal ? { signal } : {}) });
  const run = generateText({
    ...{ model, tools: set.tools, prompt: "go", stopWhen: isStepCount(1_000), maxRetries: 0 },
    ...(signal ? { abortSignal: signal } : {}),
  }).finally(() => set.end());
  script.watch(run);
  return { script, run };
}

function startAiSdk6({ source }: ToolStage, thread: string, policy: ToolPolicy = {}) {
  const script = new ModelScript<ToolReply>();
  const turn = puppeteer(script);
  const model = new MockLanguageModelV3({ doGenerate: (({ prompt }: { prompt: never }) => turn(prompt)) as never });
  const set = sandlotTools(source, { thread, sdkVersion: 6, ...policy });
  const run = generateText6({
    model,
    // Only one version can be `ai`, so the other is cast.
    tools: set.tools as never,
    prompt: "go",
    stopWhen: stepCountIs6(1_000) as never,
    maxRetries: 0,
  }).finally(() => set.end());
  script.watch(run);
  return { script, run };
}

type Start = (...args: Parameters<typeof startAiSdk6>) => {
  readonly script: ModelScript<ToolReply>;
  readonly run: Promise<unknown>;
};

function driver(name: string, start: Start): ToolDriver {
  return {
    name,
    async open(stage, thread, policy) {
      const { script, run } = start(stage, thread, policy);
      return {
        call: (tool, input) => script.call(tool, input),
        async [Symbol.asyncDispose]() {
          script.end();
          await run;
        },
      };
    },
  };
}

export const aiSdkDrivers: readonly ToolDriver[] = [driver("AI SDK 7", startAiSdk7), driver("AI SDK 6", startAiSdk6)];
