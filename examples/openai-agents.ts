/** A coding agent with the OpenAI Agents SDK: its own shell and file tools, in a sandbox of ours. */
import { run, setTracingDisabled } from "@openai/agents";
import { filesystem, SandboxAgent, shell } from "@openai/agents/sandbox";
import { assistantMessage, functionCall, ScriptedModel } from "@openai/agents/testing";
import { SandlotSandboxClient } from "@sandlot/client/openai-agents";
import { openFleet } from "sandlot";

setTracingDisabled(true);
const operation = { type: "create_file" as const, path: "sum.sh", diff: "+echo $(( $1 + $2 ))" };
const model = new ScriptedModel([
  [{ type: "apply_patch_call", callId: "1", status: "completed", operation }],
  [functionCall("exec_command", { cmd: "sh sum.sh 19 23" }, { callId: "2" })],
  [assistantMessage("The sum is 42.")],
]);

await using fleet = await openFleet({ backend: "memory", store: { type: "memory" } });
const client = new SandlotSandboxClient(fleet);
const agent = new SandboxAgent({ name: "coder", model, capabilities: [shell(), filesystem()] });

const result = await run(agent, "Write a script that adds two numbers, and add 19 and 23.", {
  sandbox: { client, options: { thread: "chat-42", user: "ann" } },
});
for (const { rawItem } of result.newItems) if ("output" in rawItem) console.log(rawItem.output);
console.log(result.finalOutput);
