/** A deep agent whose backend is a sandbox. The middleware reports the end of a run to the backend. */
import { SandlotBackend } from "@sandlot/client/deepagents";
import { createDeepAgent } from "deepagents";
import { AIMessage, fakeModel } from "langchain";
import { openFleet } from "sandlot";

const script = "/mnt/user-data/workspace/sum.sh";
const model = fakeModel()
  .respondWithTools([{ name: "write_file", args: { file_path: script, content: "echo $(( $1 + $2 ))\n" } }])
  .respondWithTools([{ name: "execute", args: { command: `sh ${script} 19 23` } }])
  .respond(new AIMessage("The sum is 42."));

await using fleet = await openFleet({ backend: "memory", store: { type: "memory" } });
const backend = new SandlotBackend(fleet);
const agent = createDeepAgent({ model, backend, middleware: [backend.middleware] });

const { messages } = await agent.invoke(
  { messages: [{ role: "user", content: "Write a script that adds two numbers, and add 19 and 23." }] },
  { configurable: { thread_id: "chat-42" } },
);
for (const { type, text } of messages)
  if (type === "tool" || text.startsWith("The sum")) console.log(`${type}: ${text}`);
