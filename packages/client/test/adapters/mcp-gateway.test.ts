/** MCP in front of a gateway: over HTTP at the gateway itself, and `sandlot mcp` with a gateway's address. */

import { spawn } from "node:child_process";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readOperatorKey } from "../../../fleet/src/gateway/keys/operator-key.ts";
import { startGateway } from "../../../fleet/src/gateway/start-gateway.ts";
import { systemWorld } from "../../../fleet/src/world/system-world.ts";
import { openToolStage, type ToolStage } from "../tools/tool-stage.ts";
import { connectMcp, GENERATIONS, type McpGeneration, MODERN_VERSION } from "./mcp-clients.ts";

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const MAIN = join(import.meta.dirname, "../../../fleet/src/cli/main.ts");

let stage: ToolStage;
let gateway: Awaited<ReturnType<typeof startGateway>>;
const keys = new Map<string, string>();

beforeAll(async () => {
  stage = await openToolStage();
  gateway = await startGateway({ fleet: stage.fleet, home: stage.home, world: systemWorld(), settings: { port: 0 } });
  for (const user of ["ann", "bob"]) keys.set(user, (await gateway.keys.create({ scope: "user", user })).key);
});
afterAll(async () => {
  // It releases its leases when it closes.
  await gateway.close();
  await stage[Symbol.asyncDispose]();
});

const connect = (generation: McpGeneration, user: string, thread: string, headers: Record<string, string> = {}) =>
  connectMcp(generation, {
    url: new URL(`${gateway.url}/mcp/threads/${thread}`),
    headers: { authorization: `Bearer ${keys.get(user) ?? "none"}`, ...headers },
  });

describe.each(GENERATIONS)("MCP %s at the gateway", (generation) => {
  test("the key decides the user, the address the thread; images, resources and the version are there", async () => {
    await using ann = await connect(generation, "ann", `t-${generation}`);
    await using bob = await connect(generation, "bob", `t-${generation}`);
    if (generation === "2026") expect(ann.protocolVersion).toBe(MODERN_VERSION);
    else expect(ann.protocolVersion).toMatch(/^2025-/);
    await ann.call("bash", {
      command: `cd /mnt/user-data/outputs; echo ${PNG} | base64 -d > dot.png; echo hi > a.txt`,
    });
    expect((await bob.call("bash", { command: "ls /mnt/user-data/outputs | wc -l" })).text).toMatch(/\b0\n/);
    const { images } = await ann.call("read_file", { path: "/mnt/user-data/outputs/dot.png" });
    expect(images).toEqual([{ mimeType: "image/png", base64: PNG }]);
    const resources = await ann.resources();
    expect(resources.map(({ name }) => name)).toEqual(["outputs/a.txt", "outputs/dot.png"]);
    expect(await ann.read(resources[0]?.uri ?? "")).toMatchObject([{ text: "hi\n" }]);
    expect(await ann.read(resources[1]?.uri ?? "")).toMatchObject([{ blob: PNG, mimeType: "image/png" }]);
    await expect(connect(generation, "nobody", "t")).rejects.toThrow();
  });

  test("two agents of one thread share its files and not their working directories", async () => {
    const agent = (name: string) =>
      connect(generation, "ann", `s-${generation}`, generation === "2026" ? { "sandlot-run": name } : {});
    await using a = await agent("a");
    await using b = await agent("b");
    await a.call("bash", { command: "mkdir a; cd a; echo 1 > f" });
    expect((await b.call("bash", { command: "cat a/f; mkdir b; cd b" })).text).toMatch(/^1\n/);
    const where = await Promise.all([a, b].map(async (one) => (await one.call("bash", { command: "pwd" })).text));
    expect(where).toEqual(["a", "b"].map((name) => `/mnt/user-data/workspace/${name}\n[exit code: 0]`));
  });

  test("a cancelled call ends its command, and the next one works", async () => {
    await using client = await connect(generation, "ann", `c-${generation}`);
    await client.call("bash", { command: "true" });
    const abort = new AbortController();
    const call = client.call("bash", { command: "sleep 1; touch late" }, { signal: abort.signal });
    await new Promise((resolve) => setTimeout(resolve, 200));
    abort.abort("enough");
    await expect(call).rejects.toThrow();
    // Commands of one run take turns, so this one gets its response when the other has ended.
    const begunAt = performance.now();
    expect((await client.call("bash", { command: "ls | wc -l" })).text).toMatch(/^0\n/);
    expect(performance.now() - begunAt).toBeLessThan(10_000);
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    expect((await client.call("ls", { path: "/mnt/user-data/workspace" })).text).toBe("(empty)");
  });
});

describe.each(GENERATIONS)("`sandlot mcp` with a gateway, MCP %s", (generation) => {
  test("works in the gateway's fleet, and gives its lease back", { timeout: 60_000 }, async () => {
    const { SANDLOT_CONFIG: _, ...environment } = process.env;
    const env = {
      ...environment,
      ...{ SANDLOT_URL: gateway.url, SANDLOT_API_KEY: (await readOperatorKey(stage.home)) ?? "" },
      SANDLOT_HOME: join(stage.home, "client"),
    };
    const thread = `cli-${generation}`;
    const args = ["--conditions=sandlot-source", MAIN, "mcp", "--thread", thread, "--user", "ann"];
    const child = spawn(process.execPath, args, { stdio: ["pipe", "pipe", "ignore"], env });
    try {
      const client = await connectMcp(generation, { stdin: child.stdin, stdout: child.stdout });
      expect((await client.call("bash", { command: "echo by way of the gateway > f; cat f" })).text).toBe(
        "by way of the gateway\n[exit code: 0]",
      );
      const held = (await stage.fleet.list()).find((sandbox) => sandbox.thread === thread);
      expect(held).toMatchObject({ user: "ann", state: "leased" });
      await client[Symbol.asyncDispose]();
      expect(await new Promise((resolve) => child.once("exit", resolve))).toBe(0);
      const state = async () => (await stage.fleet.list()).find((sandbox) => sandbox.thread === thread)?.state;
      await expect.poll(state).toBe("parked");
    } finally {
      child.kill("SIGKILL");
    }
  });
});
