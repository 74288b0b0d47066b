/** A coding agent with the Vercel AI SDK. For version 6, add `sdkVersion: 6`. */
import { sandlotTools } from "@sandlot/client/ai-sdk";
import { generateText, isStepCount } from "ai";
import { openFleet } from "sandlot";
import { scriptedModel } from "./scripted-model.ts";

const model = scriptedModel([
  { tool: "write_file", input: { path: "sum.sh", content: "echo $(( $1 + $2 ))\n" } },
  { tool: "bash", input: { command: "sh sum.sh 19 23" } },
  { text: "The sum is 42." },
]);

await using fleet = await openFleet({ backend: "memory", store: { type: "memory" } });
await using sandbox = sandlotTools(fleet, { thread: "chat-42", user: "ann" });

const { steps, text } = await generateText({
  model,
  tools: sandbox.tools,
  stopWhen: isStepCount(20),
  prompt: "Write a script that adds two numbers, and add 19 and 23.",
});
for (const { toolResults } of steps)
  for (const { toolName, output } of toolResults) console.log(`${toolName}: ${(output as { text: string }).text}`);
console.log(text);
