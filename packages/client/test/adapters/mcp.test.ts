/** What MCP adds to the tools: both generations of the protocol, over stdio and over HTTP. */

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, test, vi } from "vitest";
import { createMcpHttp } from "../../../fleet/src/mcp/index.ts";
import { openToolStage } from "../tools/tool-stage.ts";
import { overHttp, overStdio, version, world } from "./drivers/mcp.ts";
import { connectMcp, GENERATIONS, MODERN_VERSION } from "./mcp-clients.ts";

describe.each(GENERATIONS)("MCP %s", (generation) => {
  const opened = [
    ["stdio", overStdio],
    ["HTTP", overHttp],
  ] as const;

  test.each(opened)("over %s: the version, the tools, what nothing starts", async (_, open) => {
    await using stage = await openToolStage();
    await using client = await open(generation, stage, "t1");
    if (generation === "2026") expect(client.protocolVersion).toBe(MODERN_VERSION);
    else expect(client.protocolVersion).toMatch(/^2025-/);
    expect(client.instructions).toContain("/mnt/user-data/outputs");
    expect(await client.toolNames()).toEqual([
      ...["bash", "ls", "glob", "grep", "read_file", "write_file", "str_replace", "present_files"],
      "list_uploaded_files",
    ]);
    expect(await client.resources()).toEqual([]);
    expect(stage.events.filter(({ type }) => type === "lease-acquired")).toEqual([]);
  });

  test.each(opened)("over %s: files of the user are resources", async (_, open) => {
    await using stage = await openToolStage();
    await using client = await open(generation, stage, "t1", { secrets: { TOKEN: "s3cr3t-value-0815" } });
    await client.call("bash", {
      command:
        "cd /mnt/user-data; echo hello > 'uploads/a b.txt'; mkdir outputs/d; printf 'a\\000' > outputs/d/x.png; echo x > workspace/w; echo \"$TOKEN\" > outputs/t",
    });
    const resources = await client.resources();
    expect(resources.map(({ name }) => name)).toEqual(["uploads/a b.txt", "outputs/d/x.png", "outputs/t"]);
    const [text, image, secret] = await Promise.all(resources.map(({ uri }) => client.read(uri)));
    expect(text?.[0]).toMatchObject({ text: "hello\n", mimeType: "text/plain" });
    expect(image?.[0]).toMatchObject({ blob: "YQA=", mimeType: "image/png" });
    expect(secret?.[0]?.text).toBe("[redacted]\n");
    expect((await client.read("sandlot://files/mnt/user-data/workspace/w"))[0]?.text).toBe("x\n");
    for (const uri of [
      "sandlot://files/etc/passwd",
      "sandlot://files/mnt/user-data/../../etc/passwd",
      "sandlot://files/mnt/user-data/none",
    ])
      await expect(client.read(uri)).rejects.toThrow();
  });

  test.each(opened)("over %s: a long call tells that it goes on", async (_, open) => {
    await using stage = await openToolStage();
    await using client = await open(generation, stage, "t1");
    const seen: { progress: number; message?: string }[] = [];
    const reply = await client.call(
      "bash",
      { command: "sleep 0.5; echo done" },
      { onProgress: (step) => seen.push(step) },
    );
    expect(reply.text).toContain("done");
    expect(seen.length).toBeGreaterThan(1);
    expect(seen.at(-1)?.message).toMatch(/^running for 0\.\d s$/);
    expect(seen.map(({ progress }) => progress)).toEqual(
      seen.map(({ progress }) => progress).toSorted((a, b) => a - b),
    );
  });

  test.each(opened)("over %s: a cancelled call ends its command, and the connection goes on", async (_, open) => {
    await using stage = await openToolStage();
    await using client = await open(generation, stage, "t1");
    const abort = new AbortController();
    const call = client.call("bash", { command: "sleep 0.5; touch late" }, { signal: abort.signal });
    await vi.waitFor(() => expect(stage.leaseCount()).toBe(1));
    await new Promise((resolve) => setTimeout(resolve, 100));
    abort.abort("enough");
    await expect(call).rejects.toThrow();
    await new Promise((resolve) => setTimeout(resolve, 700));
    expect((await client.call("ls", { path: "/mnt/user-data/workspace" })).text).toBe("(empty)");
  });
});

test("over stdio each connection has a thread of its own, unless one is named", async () => {
  await using stage = await openToolStage();
  const seen = new Set<string>();
  for (const generation of GENERATIONS) {
    await using client = await overStdio(generation, stage);
    await client.call("bash", { command: "test ! -e mark && touch mark" });
    for (const thread of (client as unknown as { threads: string[] }).threads) seen.add(thread);
  }
  expect([...seen]).toEqual([expect.stringMatching(/^mcp-[0-9a-f]{16}$/), expect.stringMatching(/^mcp-/)]);
});

test("over HTTP the caller decides user and thread, and different callers share nothing", async () => {
  await using stage = await openToolStage();
  const mcp = createMcpHttp({ source: stage.fleet, world, version });
  const server = createServer((request, response) => {
    const [, user = "", thread = ""] = (request.url ?? "").split("/");
    void mcp.handle(request, response, { user, thread });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const at = (path: string) => connectMcp("2026", { url: new URL(`http://127.0.0.1:${port}/${path}`) });
  {
    await using a = await at("ann/t1");
    await using b = await at("bob/t1");
    await a.call("bash", { command: "cd /tmp; echo ann > /mnt/user-data/workspace/who" });
    // The next request is another server object; the run is the same.
    expect((await a.call("bash", { command: "pwd" })).text).toBe("/tmp\n[exit code: 0]");
    expect((await b.call("bash", { command: "pwd; ls" })).text).toBe("/mnt/user-data/workspace\n[exit code: 0]");
    expect(stage.leaseCount()).toBe(2);
  }
  await mcp.close();
  expect(stage.leaseCount()).toBe(0);
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});
