/** The AI SDK's own sandbox session (version 7): tools of any origin get the sandbox through it. */
import { sandlotSession } from "@sandlot/client/ai-sdk";
import { generateText, isStepCount, tool } from "ai";
import { openFleet } from "sandlot";
import { z } from "zod";
import { scriptedModel } from "./scripted-model.ts";

const shell = tool({
  description: "Runs a command.",
  inputSchema: z.object({ command: z.string() }),
  execute: async ({ command }, { experimental_sandbox: sandbox, abortSignal }) =>
    sandbox?.run({ command, ...(abortSignal ? { abortSignal } : {}) }) ?? "no sandbox",
});
const model = scriptedModel([{ tool: "shell", input: { command: "echo $(( 19 + 23 ))" } }, { text: "The sum is 42." }]);

await using fleet = await openFleet({ backend: "memory", store: { type: "memory" } });
await using session = sandlotSession(fleet, { thread: "chat-42" });

const { steps, text } = await generateText({
  model,
  tools: { shell },
  stopWhen: isStepCount(20),
  prompt: "What is 19 + 23?",
  experimental_sandbox: session,
});
for (const { toolResults } of steps) for (const { output } of toolResults) console.log(JSON.stringify(output));
console.log(text);
