/** Two gateways that share a store, each with an engine that the other does not reach. */

import type { AddressInfo } from "node:net";
import { createServer, type Server } from "node:net";
import { SandlotClient } from "@sandlot/client";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import type { HostWorkspaces, WorkspaceFiles } from "../../src/backend/host-workspaces.ts";
import { richBackend } from "./support/rich-backend.ts";
import type { Caller } from "./support/stage.ts";
import { openTwoGateways, type TwoGateways, type TwoGatewaysOptions } from "./support/two-gateways.ts";

let two: TwoGateways | null = null;
afterEach(async () => {
  await two?.done();
  two = null;
});

async function open(options: TwoGatewaysOptions = {}) {
  two = await openTwoGateways({ engines: 2, ...options });
  const key = await two.user("alice");
  const { a, b } = two;
  return { ...two, key, atA: a.operator.as(key), atB: b.operator.as(key) };
}

const exec = (caller: Caller, thread: string, command = "true") =>
  caller.ask<{ stdout: string }>(200, "POST", `/v1/threads/${thread}/exec`, { json: { command } });
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const form = () => {
  const data = new FormData();
  data.append("files", new Blob(["uploaded"]), "a.txt");
  return data;
};

interface ThreadListing {
  readonly threads: readonly { readonly thread: string }[];
  readonly unlisted: unknown;
}

/** Echoes, as a server inside a sandbox. */
let echo: Server;
let port = 0;
beforeAll(async () => {
  echo = createServer((socket) => socket.pipe(socket));
  await new Promise<void>((resolve) => echo.listen(0, "127.0.0.1", resolve));
  port = (echo.address() as AddressInfo).port;
});
afterAll(() => new Promise((resolve) => echo.close(resolve)));

describe("a thread on an engine that this gateway does not reach", () => {
  it("is answered with 409 and the gateways to ask, whatever is asked", async () => {
    const { a, b, atA, atB } = await open();
    await exec(atA, "t1");
    const root = "/v1/threads/t1";
    const file = `${root}/files/content?path=/mnt/user-data/workspace/x`;
    const requests: readonly [method: string, path: string, options?: Parameters<Caller["call"]>[2]][] = [
      ["POST", `${root}/exec`, { json: { command: "true" } }],
      ["POST", `${root}/leases`, { json: {} }],
      ["GET", `${root}`],
      ["GET", `${root}/files/list?path=/mnt/user-data`],
      ["GET", file],
      ["PUT", file, { body: new Blob(["x"]).stream() }],
      ["GET", `${root}/uploads`],
      ["POST", `${root}/ports/8080/links`, { json: {} }],
      ["POST", `${root}/aio`, { json: {} }],
      ["POST", `${root}/terminals`, { json: { columns: 80, rows: 24 } }],
      ["POST", `${root}/stop`],
      ["DELETE", `${root}?force=true`],
      ["POST", `${root}/branch`, { json: { to: "t2" } }],
    ];
    for (const [method, path, options] of requests) {
      const { error } = await atB.ask<{ error: { code: string; details: object } }>(409, method, path, options);
      expect(error, `${method} ${path}`).toMatchObject({
        code: "thread_elsewhere",
        details: { thread: "t1", engine: a.engine, gateways: [a.gateway.url] },
      });
    }
    expect((await b.fleet.list()).map(({ engine }) => engine)).toEqual([a.engine]);
    expect((await exec(atA, "t1", "echo alive")).stdout).toBe("alive\n");
  });

  it("is used through the client as if it were here", async () => {
    const { a, b, key, atA } = await open({ enrich: richBackend });
    await exec(atA, "t1", "echo from-a > /mnt/user-data/workspace/file");
    const client = new SandlotClient({ url: b.gateway.url, apiKey: key });
    const lease = await client.acquire({ thread: "t1", ttlMs: 3_000 });
    const { sandbox } = lease;
    expect((await sandbox.exec("cat /mnt/user-data/workspace/file")).stdout).toBe("from-a\n");
    await sandbox.files.write("written", "w");
    async function* pieces() {
      yield new TextEncoder().encode("streamed");
    }
    await sandbox.files.upload("streamed", pieces());
    expect(new TextDecoder().decode(await sandbox.files.read("streamed"))).toBe("streamed");
    expect(await sandbox.files.readText("written")).toBe("w");

    const { execId } = await sandbox.spawn("echo followed");
    let followed = "";
    for await (const event of sandbox.execs.follow(execId))
      if (event.type === "output") followed += new TextDecoder().decode(event.bytes);
    expect(followed).toBe("followed\n");

    const terminal = await sandbox.terminals.open({ columns: 80, rows: 24 });
    terminal.write("typed");
    for await (const { bytes } of terminal.output) {
      expect(new TextDecoder().decode(bytes)).toContain("typed");
      break;
    }
    await terminal.detach();

    const connection = await lease.connect(port);
    connection.write("through");
    expect(String(await new Promise((resolve) => connection.once("data", resolve)))).toBe("through");
    connection.destroy();

    // The lease is renewed by itself past its time.
    await pause(4_000);
    expect((await a.fleet.list())[0]?.holders).toContain(lease.id);
    await lease.release();
    expect((await a.fleet.list())[0]?.holders).not.toContain(lease.id);
    expect((await b.fleet.list()).map(({ engine }) => engine)).toEqual([a.engine]);
  });

  it("gets uploads through the client, and is deleted through it", async () => {
    const { a, b, key, atA } = await open();
    await exec(atA, "t1");
    const client = new SandlotClient({ url: b.gateway.url, apiKey: key });
    await client.uploadFiles("t1", [{ name: "a.txt", content: "uploaded" }]);
    expect((await exec(atA, "t1", "cat /mnt/user-data/uploads/a.txt")).stdout).toBe("uploaded");
    expect((await client.listUploads("t1")).map(({ filename }) => filename)).toEqual(["a.txt"]);
    await client.deleteThread("t1", { force: true });
    expect(await a.fleet.list()).toEqual([]);
    expect(await client.findThread("t1")).toBe(null);
    // It may begin anywhere again.
    await exec(b.operator.as(key), "t1");
    expect((await a.fleet.list()).map(({ engine }) => engine)).toEqual([b.engine]);
  });

  it("whose gateways have no address is an error that says so", async () => {
    const { atA, b, key } = await open({ advertised: false });
    await exec(atA, "t1");
    const client = new SandlotClient({ url: b.gateway.url, apiKey: key });
    await expect(client.acquire({ thread: "t1" })).rejects.toMatchObject({
      code: "thread_elsewhere",
      details: { gateways: [] },
    });
  });

  it("whose engine no gateway reaches any more is not answered from another, and nothing of it is ended", async () => {
    const { a, b, atA, atB } = await open();
    await exec(atA, "t1");
    const before = (await b.fleet.list()).map(({ sandboxId, generation }) => ({ sandboxId, generation }));
    await a.kill();
    await pause(5_000);
    const { error } = await atB.ask<{ error: object }>(503, "POST", "/v1/threads/t1/exec", {
      json: { command: "true" },
    });
    expect(error).toMatchObject({ code: "engine_unreachable", details: { engine: a.engine } });
    expect((await b.fleet.list()).map(({ sandboxId, generation }) => ({ sandboxId, generation }))).toEqual(before);
  });

  it("is not listed when it has files only, and the list names the gateway that knows them", async () => {
    const { a, b, atA, atB } = await open();
    await exec(atA, "t1");
    const there = await atB.ask<ThreadListing>(200, "GET", "/v1/threads");
    expect(there.threads.map(({ thread }) => thread)).toEqual(["t1"]);
    expect(there.unlisted).toEqual([{ engine: a.engine, gateways: [a.gateway.url] }]);
    expect((await atA.ask<ThreadListing>(200, "GET", "/v1/threads")).unlisted).toEqual([
      { engine: b.engine, gateways: [b.gateway.url] },
    ]);
  });

  it("takes an upload to a thread that is settled here, and starts no sandbox for it", async () => {
    const disk = new Map<string, string>();
    const { b, atB } = await open({ hostWorkspaces: (host) => fakeDisk(host === "b" ? disk : new Map()) });
    await exec(atB, "t1");
    await atB.ask(200, "POST", "/v1/threads/t1/stop", {});
    expect(await b.fleet.list()).toEqual([]);
    await atB.ask(200, "POST", "/v1/threads/t1/uploads", { body: form() });
    expect([...disk]).toEqual([["t1/mnt/user-data/uploads/a.txt", "uploaded"]]);
    expect(await b.fleet.list()).toEqual([]);
  });

  it("keeps an upload that came first: the gateway that took it has the thread from then on", async () => {
    const disks = new Map<string, Map<string, string>>();
    const hostWorkspaces = (host: string) => {
      const disk = new Map<string, string>();
      disks.set(host, disk);
      return fakeDisk(disk);
    };
    const { a, b, atA, atB } = await open({ hostWorkspaces });
    await atB.ask(200, "POST", "/v1/threads/t1/uploads", { body: form() });
    expect([...(disks.get("b") ?? [])]).toEqual([["t1/mnt/user-data/uploads/a.txt", "uploaded"]]);
    expect((await b.fleet.list()).map(({ engine }) => engine)).toEqual([b.engine]);
    await atA.ask(409, "POST", "/v1/threads/t1/uploads", { body: form() });
    await atA.ask(409, "POST", "/v1/threads/t1/exec", { json: { command: "true" } });
    await atA.ask(409, "PUT", "/v1/threads/t1/files/content?path=/mnt/user-data/workspace/x", { body: "x" });
    expect([...(disks.get("a") ?? [])]).toEqual([]);
    expect((await a.fleet.list()).length).toBe(1);
  });
});

/** A disk that keeps what is placed on it. */
function fakeDisk(disk: Map<string, string>): HostWorkspaces {
  const missing = () => Promise.reject(new Error("not on this disk"));
  return {
    use: ({ thread }, use) => {
      const stat = (path: string, sizeBytes: number) => ({
        ...{ path, kind: "file" as const, sizeBytes, modifiedAt: 0, mode: 0o644, version: "1", target: null },
      });
      const files: WorkspaceFiles = {
        stat: async () => null,
        list: async () => [],
        read: () => (async function* () {})(),
        stage: async (_, content) => {
          let text = "";
          for await (const piece of content) text += new TextDecoder().decode(piece);
          return {
            sizeBytes: text.length,
            read: () => (async function* () {})(),
            discard: async () => undefined,
            place: async (path) => {
              disk.set(`${thread}${path}`, text);
              return stat(path, text.length) as never;
            },
          };
        },
        write: missing,
        remove: missing,
      };
      return use(files);
    },
    writeFile: async ({ thread }, path, content, _) => {
      let text = "";
      for await (const piece of content) text += new TextDecoder().decode(piece);
      disk.set(`${thread}${path}`, text);
      return null;
    },
  };
}
