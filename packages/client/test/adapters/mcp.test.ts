/** MCP's additions to the tools: both generations of the protocol, over stdio and over HTTP. */

import { describe, expect, test } from "vitest";
import { openToolStage } from "../tools/tool-stage.ts";
import { overHttp, overStdio, serveHttp } from "./drivers/mcp.ts";
import { GENERATIONS, type McpConnection, MODERN_VERSION } from "./mcp-clients.ts";

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
      ...["bash", "bash_output", "ls", "glob", "grep", "read_file", "write_file", "str_replace", "present_files"],
      "list_uploaded_files",
    ]);
    expect(stage.events.filter(({ type }) => type === "lease-acquired")).toEqual([]);
  });

  test.each(opened)("over %s: the files of a named thread are listed at once", async (_, open) => {
    await using stage = await openToolStage();
    {
      await using lease = await stage.fleet.acquire({ thread: "t1" });
      await lease.sandbox.files.write("/mnt/user-data/uploads/before.txt", "it is s3cr3t-value-0815");
    }
    await using client = await open(generation, stage, "t1", { secrets: { TOKEN: "s3cr3t-value-0815" } });
    const [upload] = await client.resources();
    expect(upload?.name).toBe("uploads/before.txt");
    // No call has needed the secrets yet.
    expect((await client.read(upload?.uri ?? ""))[0]?.text).toBe("it is [redacted]");
  });

  test.each(opened)("over %s: a call may name its run, and has its shell to itself", async (_, open) => {
    await using stage = await openToolStage();
    await using client = await open(generation, stage, "t1");
    await Promise.all(["/tmp", "/mnt", "/"].map((at) => client.call("bash", { command: `cd ${at}` }, { run: at })));
    const at = async (run?: string) =>
      (await client.call("bash", { command: "pwd" }, run === undefined ? {} : { run })).text.split("\n")[0];
    expect(await Promise.all([at("/tmp"), at("/mnt"), at("/"), at(), at("new")])).toEqual([
      ...["/tmp", "/mnt", "/", "/mnt/user-data/workspace", "/mnt/user-data/workspace"],
    ]);
    const tooLong = await client.call("bash", { command: "pwd" }, { run: "x".repeat(129) });
    expect(tooLong).toMatchObject({ isError: true, text: expect.stringContaining("sandlot/run") });
    // A file that one run has read counts as unread in another.
    await client.call("write_file", { path: "f", content: "1" }, { run: "/tmp" });
    const blind = await client.call("write_file", { path: "f", content: "2" }, { run: "/mnt" });
    expect(blind).toMatchObject({ isError: true, text: expect.stringContaining("have not read it") });
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
    // Clients show a file by its own name.
    expect(resources.map(({ title }) => title)).toEqual(resources.map(({ name }) => name));
    const [text, image, secret] = await Promise.all(resources.map(({ uri }) => client.read(uri)));
    expect(text?.[0]).toMatchObject({ text: "hello\n", mimeType: "text/plain" });
    expect(image?.[0]).toMatchObject({ blob: "YQA=", mimeType: "image/png" });
    expect(secret?.[0]?.text).toBe("[redacted]\n");
    expect((await client.read("sandlot://files/mnt/user-data/workspace/w"))[0]?.text).toBe("x\n");
    for (const uri of [
      "sandlot://files/etc/passwd",
      "sandlot://files/mnt/user-data/../../etc/passwd",
      "sandlot://files/mnt/user-data/none",
      "sandlot://files/mnt/user-data/outputs/d",
      "sandlot://files/mnt/user-data/%zz",
    ])
      await expect(client.read(uri)).rejects.toThrow("Resource not found");
  });

  test.each(opened)("over %s: a long call reports progress", async (_, open) => {
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

  test.each(opened)("over %s: progress carries what the command prints, as it comes", async (_, open) => {
    await using stage = await openToolStage();
    await using client = await open(generation, stage, "t1");
    const messages: string[] = [];
    const call = client.call(
      "bash",
      { command: "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two" },
      { onProgress: ({ message = "" }) => messages.push(message) },
    );
    await expect.poll(() => messages.join("\n"), { timeout: 20_000 }).toContain("s\none");
    await client.call("write_file", { path: "go", content: "x" });
    expect((await call).text).toBe("one\ntwo\n[exit code: 0]");
    expect(messages.filter((message) => message.includes("one"))).toHaveLength(1);
  });

  test.each(opened)(
    "over %s: a command that takes too long for the client goes on, and is read later",
    async (_, open) => {
      await using stage = await openToolStage();
      await using client = await open(generation, stage, "t1", { replyWithinMs: 200 });
      const begun = await client.call("bash", { command: "sleep 1; echo done", timeout_seconds: 120 });
      expect(begun).toMatchObject({ isError: false, text: expect.stringContaining("still running after 0.") });
      const [, id = ""] = /command_id="([^"]+)"/.exec(begun.text) ?? [];
      const output = async () => (await client.call("bash_output", { command_id: id })).text;
      let text = await output();
      while (text.startsWith("[still running")) text = await output();
      expect(text).toBe("done\n[exit code: 0]");
    },
  );

  test.each(opened)("over %s: a cancelled call ends its command, and the connection goes on", async (_, open) => {
    await using stage = await openToolStage();
    await using client = await open(generation, stage, "t1");
    const abort = new AbortController();
    const call = client.call("bash", { command: "sleep 0.5; touch late" }, { signal: abort.signal });
    await expect.poll(() => stage.leaseCount()).toBe(1);
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

test("over stdio a client that has listed files is notified of new ones", async () => {
  await using stage = await openToolStage();
  await using client = await overStdio("2025", stage);
  let told = 0;
  client.onFilesChanged(() => (told += 1));
  await client.call("bash", { command: "echo 1 > /mnt/user-data/outputs/unseen" });
  expect(told).toBe(0);
  expect(await client.resources()).toHaveLength(1);
  await client.call("bash", { command: "echo 2 > /mnt/user-data/outputs/unseen; touch here" });
  expect(told).toBe(0);
  await client.call("write_file", { path: "/mnt/user-data/outputs/new", content: "" });
  await expect.poll(() => told).toBe(1);
  await client.call("bash", { command: "rm /mnt/user-data/outputs/new" });
  await expect.poll(() => told).toBe(2);
});

test("over stdio, listing what a thread of its own has starts nothing", async () => {
  await using stage = await openToolStage();
  for (const generation of GENERATIONS) {
    await using client = await overStdio(generation, stage);
    expect(await client.resources()).toEqual([]);
  }
  expect(stage.events.filter(({ type }) => type === "lease-acquired")).toEqual([]);
});

const whereIs = async (client: McpConnection) => (await client.call("bash", { command: "pwd" })).text.split("\n")[0];

test("over HTTP the caller decides user and thread, and different callers share nothing", async () => {
  await using stage = await openToolStage();
  {
    await using served = await serveHttp(stage);
    await using a = await served.connect("2026", "ann/t1");
    await using b = await served.connect("2026", "bob/t1");
    await a.call("bash", { command: "cd /tmp; echo ann > /mnt/user-data/workspace/who" });
    // The next request is another server object; the run is the same.
    expect((await a.call("bash", { command: "pwd" })).text).toBe("/tmp\n[exit code: 0]");
    expect((await b.call("bash", { command: "pwd; ls" })).text).toBe("/mnt/user-data/workspace\n[exit code: 0]");
    expect(stage.leaseCount()).toBe(2);
  }
  expect(stage.leaseCount()).toBe(0);
});

test("over HTTP each connection of a 2025 client is a session with its own shell, which ends on request", async () => {
  await using stage = await openToolStage();
  await using served = await serveHttp(stage);
  await using a = await served.connect("2025", "ann/t1");
  await using b = await served.connect("2025", "ann/t1");
  await a.call("bash", { command: "cd /tmp; echo shared > /mnt/user-data/workspace/f" });
  await b.call("bash", { command: "cd /mnt; cat user-data/workspace/f" });
  expect([await whereIs(a), await whereIs(b)]).toEqual(["/tmp", "/mnt"]);
  expect(stage.leaseCount()).toBe(2);
  expect(a.sessionId()).toMatch(/^[0-9a-f]{32}$/);
  expect(a.sessionId()).not.toBe(b.sessionId());

  // Another user's session is out of reach.
  const headers = { "mcp-session-id": String(a.sessionId()), accept: "application/json, text/event-stream" };
  const params = { name: "bash", arguments: { command: "pwd" } };
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params });
  const post = (path: string) =>
    fetch(served.urlOf(path), { method: "POST", body, headers: { ...headers, "content-type": "application/json" } });
  expect(await (await post("bob/t1")).text()).toContain("/mnt/user-data/workspace");
  expect(await (await post("ann/t1")).text()).toContain("/tmp");

  const leases = stage.leaseCount();
  expect((await fetch(served.urlOf("ann/t1"), { method: "DELETE", headers })).status).toBe(204);
  expect(stage.leaseCount()).toBe(leases - 1);
  expect((await post("ann/t1")).status).toBe(404);
  await expect(a.call("bash", { command: "pwd" })).rejects.toThrow();
  expect(await whereIs(b)).toBe("/mnt");
});

test("over HTTP a 2026 client says by a header which run its requests are for", async () => {
  await using stage = await openToolStage();
  await using served = await serveHttp(stage);
  const named = (run: string) => served.connect("2026", "ann/t1", { "sandlot-run": run });
  await using a = await named("agent-a");
  await using b = await named("agent-b");
  await a.call("bash", { command: "cd /tmp" });
  expect([await whereIs(a), await whereIs(b)]).toEqual(["/tmp", "/mnt/user-data/workspace"]);
  await using again = await named("agent-a");
  expect(await whereIs(again)).toBe("/tmp");
  await expect(named("x".repeat(200))).rejects.toThrow();
  const gone = await fetch(served.urlOf("ann/t1"), { method: "DELETE", headers: { "sandlot-run": "agent-a" } });
  expect(gone.status).toBe(204);
  expect(await whereIs(again)).toBe("/mnt/user-data/workspace");
});
