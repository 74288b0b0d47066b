/** A coding agent with LangChain.js. The middleware brings the tools, takes a lease when needed and releases it. */
import { sandlotMiddleware } from "@sandlot/client/langchain";
import { AIMessage, createAgent, fakeModel } from "langchain";
import { openFleet } from "sandlot";

const model = fakeModel()
  .respondWithTools([{ name: "write_file", args: { path: "sum.sh", content: "echo $(( $1 + $2 ))\n" } }])
  .respondWithTools([{ name: "bash", args: { command: "sh sum.sh 19 23" } }])
  .respond(new AIMessage("The sum is 42."));

await using fleet = await openFleet({ backend: "memory", store: { type: "memory" } });
const agent = createAgent({ model, tools: [], middleware: [sandlotMiddleware(fleet)] });

const { messages } = await agent.invoke(
  { messages: [{ role: "user", content: "Write a script that adds two numbers, and add 19 and 23." }] },
  { configurable: { thread_id: "chat-42", user_id: "ann" } },
);
for (const { type, text } of messages)
  if (type === "tool" || text.startsWith("The sum")) console.log(`${type}: ${text}`);
