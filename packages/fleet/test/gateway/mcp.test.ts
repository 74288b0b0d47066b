/** MCP through a gateway: the same keys, the same threads, and released leases. */

import { afterAll, beforeAll, expect, test } from "vitest";
import { openStage, type Stage } from "./support/stage.ts";

let stage: Stage;
beforeAll(async () => {
  stage = await openStage();
});
afterAll(async () => {
  await stage.done();
});

const headers = { accept: "application/json, text/event-stream" };
let id = 0;
const message = (method: string, params: object) => ({ json: { jsonrpc: "2.0", id: ++id, method, params }, headers });
const run = (command: string) => message("tools/call", { name: "bash", arguments: { command, description: "test" } });

/** The response, as JSON or as its one event. */
async function answerOf(
  response: Response,
): Promise<{ result?: { tools?: { name: string }[]; content?: { text: string }[] } }> {
  const text = await response.text();
  expect([response.status, text]).toEqual([200, expect.any(String)]);
  const data = /^data: (.*)$/m.exec(text)?.[1] ?? text;
  return JSON.parse(data);
}

test("tools are listed and called in the caller's own thread", async () => {
  const [alice, bob] = [await stage.user("alice"), await stage.user("bob")];
  const hello = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "test", version: "1" } };
  const begun = await alice.call("POST", "/mcp/threads/m", message("initialize", hello));
  expect(begun.headers.get("x-content-type-options")).toBe("nosniff");
  await answerOf(begun);
  const { result } = await answerOf(await alice.call("POST", "/mcp/threads/m", message("tools/list", {})));
  expect(result?.tools?.map(({ name }) => name)).toContain("bash");
  expect(await stage.fleet.list()).toEqual([]);
  await answerOf(await alice.call("POST", "/mcp/threads/m", run("echo secret > note; cat note")));
  const seen = await alice.ask<{ stdout: string }>(200, "POST", "/v1/threads/m/exec", {
    json: { command: "cat note" },
  });
  expect(seen.stdout).toBe("secret\n");
  const others = await answerOf(await bob.call("POST", "/mcp/threads/m", run("cat note || echo none")));
  expect(others.result?.content?.[0]?.text).toContain("none");
});

test("is for keys only, for their own user, and not for web pages", async () => {
  const alice = await stage.user("alice");
  const asked = message("tools/list", {});
  expect((await fetch(`${stage.gateway.url}/mcp/threads/m`, { method: "POST" })).status).toBe(401);
  await stage.platform.ask(422, "POST", "/mcp/threads/m", asked);
  await alice.ask(422, "POST", "/mcp/threads/a%2Fb", asked);
  const page = { ...asked, headers: { ...headers, origin: "https://evil.example" } };
  await alice.ask(403, "POST", "/mcp/threads/m", page);
  const wrong = await alice.call("POST", "/mcp/threads/m", { json: { nonsense: true }, headers });
  expect([wrong.status >= 400 && wrong.status < 500, await wrong.text()]).toEqual([true, expect.any(String)]);
});
