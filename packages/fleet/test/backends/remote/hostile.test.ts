/** A provisioner that answers what it likes: nothing of it is believed, followed or waited for without an end. */

import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type EngineRef, type FleetId, isSandlotError } from "@sandlot/contract";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Backend } from "../../../src/backend/backend.ts";
import { openRemoteBackend } from "../../../src/backends/remote/backend.ts";
import { remoteSchema } from "../../../src/backends/remote/config.ts";
import { parseObjectId, prefixOf, refOf } from "../../../src/backends/remote/object-id.ts";
import { ProvisionerClient, Refused, Silent } from "../../../src/backends/remote/provisioner-client.ts";
import { checkSandboxUrl } from "../../../src/backends/remote/sandbox-url.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import type { World } from "../../../src/world/world.ts";

const NEVER = new AbortController().signal;
type Answer = (request: IncomingMessage, response: ServerResponse) => void;

/** A world in which a second takes ten milliseconds. */
function hastyWorld(): World {
  const world = systemWorld();
  return new Proxy(world, {
    get(target, name) {
      if (name === "timer")
        return (delayMs: number, fire: () => void, options?: { readonly background?: boolean }) =>
          target.timer(delayMs / 100, fire, options);
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

let answer: Answer = (_request, response) => void response.end("{}");
let server: Server;
let url: URL;
const asked: string[] = [];

beforeAll(async () => {
  server = createServer((request, response) => {
    asked.push(`${request.method} ${request.url}`);
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
afterAll(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});
beforeEach(() => void asked.splice(0));

const json =
  (value: unknown, status = 200): Answer =>
  (_request, response) =>
    void response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));

describe("its answers", () => {
  const client = (world: World = systemWorld()) =>
    new ProvisionerClient({ url, key: async () => "the-key", sandboxHosts: [], world });
  const order = { id: "sl-1", thread: "t", user: "u" };
  const good = { sandbox_id: "sl-1", sandbox_url: "http://127.0.0.1:1", status: "Running" };

  it("are taken when they are right, with fields that are not known", async () => {
    answer = (request, response) => {
      expect(request.headers["x-api-key"]).toBe("the-key");
      json({ ...good, more: { x: 1 } })(request, response);
    };
    expect(await client().create(order, NEVER)).toEqual({ id: "sl-1", url: "http://127.0.0.1:1", status: "Running" });
    expect(await client().find("sl-1", NEVER)).toMatchObject({ status: "Running" });
    answer = json({ detail: "Sandbox 'sl-1' not found" }, 404);
    expect(await client().find("sl-1", NEVER)).toBeNull();
  });

  it.each<[string, Answer]>([
    ["no JSON", (_, response) => void response.end("<html>")],
    ["nothing", (_, response) => void response.end()],
    ["another type", json([1, 2])],
    ["missing fields", json({ sandbox_id: "sl-1" })],
    ["a field of another type", json({ ...good, status: 1 })],
    ["another sandbox", json({ ...good, sandbox_id: "sl-2" })],
    ["another host", json({ ...good, sandbox_url: "http://169.254.169.254/latest" })],
    ["a file", json({ ...good, sandbox_url: "file:///etc/passwd" })],
    ["too many bytes", json({ ...good, more: "x".repeat(1_000_000) })],
    ["too many values", json({ ...good, more: Array.from({ length: 5_000 }, () => 0) })],
    ["too deep", (_, response) => void response.end(`{"a":${"[".repeat(10_000)}${"]".repeat(10_000)}}`)],
    ["a redirect", (_, response) => void response.writeHead(302, { location: "http://127.0.0.1:1/" }).end()],
    [
      "a cut",
      (_, response) => {
        response.writeHead(200, { "content-length": "100" }).write("{");
        response.destroy();
      },
    ],
    ["a broken connection", (_, response) => void response.destroy()],
  ])("that are wrong are none: %s", async (_name, wrong) => {
    answer = wrong;
    await expect(client().create(order, NEVER)).rejects.toBeInstanceOf(Silent);
    await expect(client().find("sl-1", NEVER)).rejects.toBeInstanceOf(Silent);
    expect(asked.length).toBe(2);
  });

  it.each<[string, Answer]>([
    ["does not begin", () => {}],
    ["does not end", (_, response) => void response.write("{")],
    [
      "comes a byte at a time",
      (_, response) => {
        const timer = setInterval(() => response.write(" "), 5);
        response.once("close", () => clearInterval(timer));
      },
    ],
  ])("have a deadline: one that %s", async (_name, slow) => {
    answer = slow;
    const hasty = client(hastyWorld());
    await expect(hasty.create(order, NEVER)).rejects.toBeInstanceOf(Silent);
    await expect(hasty.list(NEVER)).rejects.toBeInstanceOf(Silent);
    await expect(hasty.remove("sl-1", NEVER)).rejects.toBeInstanceOf(Silent);
  });

  it("that refuse are cut, and without line breaks", async () => {
    answer = json({ detail: `no\n\u001b[31m${"x".repeat(10_000)}` }, 500);
    const refusal = await client()
      .create(order, NEVER)
      .catch((error: unknown) => error);
    expect(refusal).toBeInstanceOf(Refused);
    const { message } = refusal as Error;
    expect([message.length < 400, /\p{Cc}/u.test(message)]).toEqual([true, false]);
  });

  it("a list may have any ids, and wrong ones are left out", async () => {
    answer = json({
      sandboxes: [
        { sandbox_id: "ok", sandbox_url: "ftp://x", status: "Running" },
        { sandbox_id: "y".repeat(300), sandbox_url: "", status: "Running" },
        { sandbox_id: "../../etc", sandbox_url: "" },
      ],
      count: -1,
    });
    expect((await client().list(NEVER)).map(({ id }) => id)).toEqual(["ok", "../../etc"]);
    answer = json({ sandboxes: "none" });
    await expect(client().list(NEVER)).rejects.toBeInstanceOf(Silent);
  });
});

describe("the URL of a sandbox", () => {
  const check = (text: string, hosts: readonly string[] = [], provisioner = "https://prov.example:8750") => {
    try {
      return checkSandboxUrl(text, new URL(provisioner), hosts);
    } catch (error) {
      return (error as Error).message.replace(/^the provisioner sent a sandbox_url /, "");
    }
  };

  it("may be at the provisioner's own host, on any port, with a plain path", () => {
    expect(check("https://prov.example:8751/aio/p00ff/")).toBe("https://prov.example:8751/aio/p00ff");
    expect(check("http://127.0.0.1:9/", [], "http://127.0.0.1:8")).toBe("http://127.0.0.1:9");
    expect(check("https://PROV.example/x/../y")).toBe("https://prov.example/y");
  });

  it("may be at a host that the configuration names", () => {
    const hosts = ["node-1", "*.deer-flow.svc.cluster.local", "::1"];
    expect(check("http://node-1:30001", hosts)).toBe("http://node-1:30001");
    expect(check("http://sandbox-a-svc.deer-flow.svc.cluster.local:8080", hosts)).toMatch(/^http:/);
    expect(check("http://[::1]:8080", hosts)).toBe("http://[::1]:8080");
    expect(check("http://deer-flow.svc.cluster.local:8080", hosts)).toContain("not its own host");
    expect(check("http://xdeer-flow.svc.cluster.local:8080", hosts)).toContain("not its own host");
  });

  it.each([
    ["http://prov.example:8751", "in the clear"],
    ["https://evil.example/", "not its own host"],
    ["https://prov.example.evil.example/", "not its own host"],
    ["http://169.254.169.254/", "not its own host"],
    ["http://localhost/", "not its own host"],
    ["https://user:pw@prov.example/", "a user"],
    ["https://prov.example/?x=1", "a query"],
    ["https://prov.example/#x", "a fragment"],
    ["https://prov.example/a%2fb", "not plain"],
    ["https://prov.example/a b", "not plain"],
    ["gopher://prov.example/", "scheme"],
    ["unix:/run/docker.sock", "scheme"],
    ["javascript:alert(1)", "scheme"],
    ["//prov.example/", "no URL"],
    ["", "no URL"],
    [`https://prov.example/${"x".repeat(3_000)}`, "no URL"],
  ])("may not be %s", (text, problem) => expect(check(text)).toContain(problem));
});

describe("a backend with such a provisioner", () => {
  const home = mkdtempSync(join(tmpdir(), "sl-hostile-"));
  const fleetId = "mine" as FleetId;
  let backend: Backend;

  const open = () => {
    const remote = remoteSchema.parse({ url: url.href });
    return openRemoteBackend({ settings: { home, fleetId, skillsPath: null, remote }, world: systemWorld() });
  };
  beforeEach(async () => {
    answer = json({ sandboxes: [], count: 0 });
    backend = await open();
  });
  afterEach(() => backend.close());
  afterAll(() => rmSync(home, { recursive: true }));

  const codeOf = (promise: Promise<unknown>) =>
    promise.then(
      () => "it resolved",
      (error: unknown) => (isSandlotError(error) ? error.code : String(error)),
    );
  const refIn = (engineId: string) => refOf(`${prefixOf(fleetId, engineId)}-aa-1`);

  it("does not open without an answer", async () => {
    answer = json({ detail: "Unauthorized" }, 401);
    expect(await codeOf(open())).toBe("engine_unavailable");
    answer = (_, response) => void response.destroy();
    expect(await codeOf(open())).toBe("engine_unavailable");
  });

  it("takes 404 for dead, and everything else that is not clear for unknown", async () => {
    const ref = refIn(backend.engineId);
    const id = ref.slice("remote:".length);
    const statuses = { Running: "alive", Pending: "alive", Succeeded: "dead", Failed: "dead", Unknown: "unknown" };
    for (const [status, liveness] of Object.entries({ ...statuses, Whatever: "unknown" })) {
      answer = json({ sandbox_id: id, sandbox_url: url.href, status });
      expect([status, await backend.probe(ref, NEVER)]).toEqual([status, liveness]);
    }
    for (const status of [400, 401, 403, 429, 500, 502, 503]) {
      answer = json({ detail: "no" }, status);
      expect([status, await backend.probe(ref, NEVER)]).toEqual([status, "unknown"]);
    }
    answer = json({ detail: "gone" }, 404);
    expect(await backend.probe(ref, NEVER)).toBe("dead");
  });

  it("DeerFlow's NotFound is dead only where nothing answers at the URL", async () => {
    const ref = refIn(backend.engineId);
    const record = { sandbox_id: ref.slice("remote:".length), status: "NotFound" };
    const about = { home_dir: "/", version: "1", detail: { system: {}, runtime: {}, utils: [] } };
    answer = (request, response) =>
      request.url?.startsWith("/v1/") === true
        ? json(request.url === "/v1/sandbox" ? about : { success: true, data: [] })(request, response)
        : json({ ...record, sandbox_url: url.href })(request, response);
    expect(await backend.probe(ref, NEVER)).toBe("unknown");
    answer = json({ ...record, sandbox_url: "http://127.0.0.1:1" });
    expect(await backend.probe(ref, NEVER)).toBe("dead");
  });

  it("asks for no sandbox of another fleet, whatever the list says", async () => {
    const prefix = prefixOf(fleetId, backend.engineId);
    const ids = [
      `${prefix}-aa-1`,
      `${prefix}x-aa-1`,
      "sl-0123456789-aa-1",
      "aa",
      `${prefix}-aa-1/../x`,
      `${prefix}--1`,
    ];
    answer = json({ sandboxes: ids.map((sandbox_id) => ({ sandbox_id, sandbox_url: "x", status: "Running" })) });
    const listed = await backend.list({ consistent: true }, NEVER);
    expect(listed.map(({ ref }) => ref)).toEqual([refOf(`${prefix}-aa-1`)]);
    expect(parseObjectId(prefix, `${prefix}-aa-1`)).toMatchObject({ sandboxId: "aa", generation: 1 });
    asked.splice(0);
    for (const ref of ["remote:sl-0123456789-aa-1", "docker:x", "remote:../x"] as EngineRef[]) {
      expect(await codeOf(backend.probe(ref, NEVER))).toBe("sandbox_not_found");
      expect(await codeOf(backend.destroy(ref, NEVER))).toBe("sandbox_not_found");
    }
    expect(asked).toEqual([]);
  });

  it("a destroy is over when the provisioner says so, and not before", async () => {
    const ref = refIn(backend.engineId);
    let count = 0;
    answer = (request, response) => json({ ok: true, sandbox_id: "x", stopped: ++count >= 3 })(request, response);
    await backend.destroy(ref, NEVER);
    expect(asked.filter((line) => line.startsWith("DELETE")).length).toBe(3);
    answer = json({ detail: "Partial cleanup: pod: no" }, 500);
    expect(await codeOf(backend.destroy(ref, NEVER))).toBe("engine_unavailable");
  });
});
