/** A coding agent with Mastra: its workspace tools, in a sandbox of ours. */
import { Agent } from "@mastra/core/agent";
import { Workspace } from "@mastra/core/workspace";
import { SandlotWorkspaceSandbox } from "@sandlot/client/mastra";
import { openFleet } from "sandlot";
import { scriptedModel } from "./scripted-model.ts";

const model = scriptedModel([
  { tool: "mastra_workspace_write_file", input: { path: "sum.sh", content: "echo $(( $1 + $2 ))\n" } },
  { tool: "mastra_workspace_execute_command", input: { command: "sh sum.sh 19 23" } },
  { text: "The sum is 42." },
]);

await using fleet = await openFleet({ backend: "memory", store: { type: "memory" } });
await using sandbox = new SandlotWorkspaceSandbox(fleet, { thread: "chat-42", user: "ann" });
const workspace = new Workspace({ sandbox, filesystem: sandbox.filesystem });
// The mock model is typed for the AI SDK; Mastra accepts it unchanged.
const agent = new Agent({
  id: "coder",
  name: "coder",
  instructions: "You write code.",
  model: model as never,
  workspace,
});

const { text, toolResults } = await agent.generate("Write a script that adds two numbers, and add 19 and 23.");
for (const { payload } of toolResults) console.log(`${payload.toolName}: ${JSON.stringify(payload.result)}`);
console.log(text);
