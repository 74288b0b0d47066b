/** The published packages have the promised names, and each of them takes a fleet or the client of a gateway. */

import { afterAll, beforeAll, expect, test } from "vitest";
import { type PackedProject, packedProject, whyNotPacked } from "./packed-project.ts";

const reason = whyNotPacked();
let project: PackedProject;

beforeAll(() => {
  if (reason === null) project = packedProject();
}, 60_000);
afterAll(() => project?.remove());

/** Every name, used once with each kind of source, in a thread whose name does not fit our pattern. */
const PROGRAM = `
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { SandlotClient } from "@sandlot/client";
import * as aiSdk from "@sandlot/client/ai-sdk";
import * as deepagents from "@sandlot/client/deepagents";
import * as langchain from "@sandlot/client/langchain";
import * as mastra from "@sandlot/client/mastra";
import * as openai from "@sandlot/client/openai-agents";
import * as tools from "@sandlot/client/tools";
import { AIMessage, createAgent, fakeModel } from "langchain";
import { openFleet } from "sandlot";
import { readOperatorKey } from "sandlot/gateway";

const home = process.env.SANDLOT_HOME;
const config = { backend: "memory", store: { type: "memory" } };
writeFileSync("sandlot.json", JSON.stringify(config));
const server = spawn("node_modules/.bin/sandlot", ["serve", "--port", "0", "--json", "--destroy", "-c", "sandlot.json"], { stdio: ["ignore", "pipe", "inherit"] });
const { listening: url } = JSON.parse(await new Promise((resolve) => server.stdout.once("data", resolve)));
const client = new SandlotClient({ url, apiKey: await readOperatorKey(home), user: "default" });
const fleet = await openFleet(config);

const thread = "a foreign/thread: \u00fc";
const command = "echo $(( 19 + 23 ))";
const answers = {};
for (const [name, source] of [["fleet", fleet], ["gateway", client]]) {
  const answer = {};
  { await using box = tools.sandlotTools(source, { thread }); answer.tools = (await box.call("bash", { command })).text; }
  { await using set = langchain.sandlotTools(source, { thread }); answer.langchainTools = set.tools.map(({ name }) => name).join(); }
  const model = fakeModel().respondWithTools([{ name: "bash", args: { command } }]).respond(new AIMessage("done"));
  const agent = createAgent({ model, tools: [], middleware: [langchain.sandlotMiddleware(source)] });
  const { messages } = await agent.invoke({ messages: [{ role: "user", content: "go" }] }, { configurable: { thread_id: thread } });
  answer.langchain = messages.at(-2).text;
  { await using backend = new deepagents.SandlotBackend(source, { thread }); answer.deepagents = (await backend.execute(command)).output; }
  { await using session = aiSdk.sandlotSession(source, { thread }); answer.aiSdk = (await session.run({ command })).stdout; }
  { await using set = aiSdk.sandlotTools(source, { thread }); answer.aiSdkTools = (await set.tools.bash.execute({ command }, {})).text; }
  const session = await new openai.SandlotSandboxClient(source).create({ options: { thread } });
  answer.openai = (await session.exec({ cmd: command })).stdout;
  await session.close();
  { await using sandbox = new mastra.SandlotWorkspaceSandbox(source, { thread }); answer.mastra = (await sandbox.executeCommand(command)).stdout; }
  const listed = () => (source === fleet ? fleet.list() : client.listSandboxes());
  // A gateway keeps a thread's lease for a second after its last request.
  for (let tries = 0; source === client && tries < 100 && (await listed()).some(({ state }) => state === "leased"); tries += 1)
    await new Promise((resolve) => setTimeout(resolve, 100));
  const list = await listed();
  answer.sandboxes = list.map(({ thread, state, holders }) => [thread.replace(/[0-9a-f]{32}$/, "HASH"), state, holders.length]);
  answers[name] = answer;
}
await fleet.close({ destroy: true });
server.kill("SIGTERM");
await new Promise((resolve) => server.once("exit", resolve));
console.log(JSON.stringify(answers));
`;

const SAME = {
  tools: "42\n[exit code: 0]",
  langchainTools: "bash,ls,glob,grep,read_file,write_file,str_replace,present_files,list_uploaded_files",
  langchain: "42\n[exit code: 0]",
  deepagents: "42\n",
  aiSdk: "42\n",
  aiSdkTools: "42\n[exit code: 0]",
  openai: "42\n",
  mastra: "42\n",
  // One sandbox for all of them, under one name, and unheld.
  sandboxes: [["a_foreign_thread__xHASH", "parked", 0]],
};

test("every subpath has its names, and each takes a fleet or a gateway's client", { timeout: 120_000 }, (context) => {
  if (reason !== null) context.skip(reason);
  const { status, stdout, stderr } = project.run(PROGRAM);
  expect(status, stderr).toBe(0);
  expect(JSON.parse(stdout.trim().split("\n").at(-1) ?? "")).toEqual({ fleet: SAME, gateway: SAME });
});
