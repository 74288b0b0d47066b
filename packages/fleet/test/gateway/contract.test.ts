/**
 * Every route that the server registers: the document has it, a valid request works, a wrong one is refused without a
 * 5xx, and only permitted keys get in. Another user's identical request never shows or changes anything.
 */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { CATALOGUE, type Entry, MARKER, prepare, type World } from "./support/catalogue.ts";
import { richBackend } from "./support/rich-backend.ts";
import { Caller, openStage, type Stage } from "./support/stage.ts";

let stage: Stage;
let alice: Caller;
let bob: Caller;
let nobody: Caller;
let count = 0;

beforeAll(async () => {
  stage = await openStage({
    enrich: richBackend,
    settings: {
      rate: {
        perKeyPerSecond: 100_000,
        perUserPerSecond: 100_000,
        burst: 100_000,
        perAddressFailuresPerMinute: 100_000,
      },
    },
    fleet: { limits: { max: 5_000 } },
  });
  alice = await stage.user("alice");
  bob = await stage.user("bob");
  nobody = new Caller(stage.gateway.url, "");
});
afterAll(async () => {
  // Abandoned leases end by themselves; this test does not wait for that.
  for (const { user, thread } of await stage.fleet.list())
    if (user !== null && thread !== null) await stage.fleet.destroy({ user, thread }, { force: true });
  await stage.done();
});

const nameOf = ({ method, url }: { method: string; url: string }) => `${method} ${url}`;
const ownerOf = ({ who }: Entry) => (who === "operator" ? stage.operator : alice);

/** The status, and the text unless the response is endless. */
async function outcome(caller: Caller, entry: Entry, world: World): Promise<{ status: number; text: string }> {
  const [path, options] = entry.request(world);
  const stop = new AbortController();
  const response = await caller.call(entry.method, path, { ...options, signal: stop.signal });
  if (entry.endless === true && response.ok) {
    const { value } =
      (await response.body
        ?.getReader()
        .read()
        .catch(() => ({ value: undefined }))) ?? {};
    stop.abort();
    return { status: response.status, text: Buffer.from(value ?? []).toString("utf8") };
  }
  return { status: response.status, text: await response.text() };
}

/** Of endless streams that start silent only the head is checked. */
const SILENT = new Set(["GET /v1/events"]);
async function statusOf(caller: Caller, entry: Entry, world: World): Promise<number> {
  if (!SILENT.has(nameOf(entry))) return (await outcome(caller, entry, world)).status;
  const stop = new AbortController();
  const [path] = entry.request(world);
  const { status } = await caller.call(entry.method, path, { signal: stop.signal });
  stop.abort();
  return status;
}

test("the catalogue, the server and the document name the same routes", async () => {
  const registered = stage.gateway.routes
    .map(nameOf)
    .filter((name) => !name.includes(" /docs"))
    .sort();
  expect(CATALOGUE.map(nameOf).sort()).toEqual(registered);
  const document = await stage.operator.ask<{
    openapi: string;
    paths: Record<string, object>;
    components: { schemas: object };
  }>(200, "GET", "/openapi.json");
  expect(document.openapi).toMatch(/^3\.1/);
  const documented = Object.entries(document.paths).flatMap(([url, methods]) =>
    Object.keys(methods).map(
      (method) =>
        `${method.toUpperCase()} ${url.replace(/\{([^}]*)\}/g, (_, name) => (name === "path" ? "*" : `:${name}`))}`,
    ),
  );
  expect(documented.sort()).toEqual(registered);
  expect(Object.keys(document.components.schemas)).toContain("ExecResult");
});

describe.each(CATALOGUE.map((entry) => [nameOf(entry), entry] as const))("%s", (_name, entry) => {
  test("works for permitted callers only", async () => {
    const { id: keyId } = await stage.gateway.keys.create({ scope: "user", user: "former" });
    const world = await prepare(alice, `t-${++count}`, keyId);
    const { thread } = world;
    if (entry.who !== "open") expect(await statusOf(nobody, entry, world)).toBe(401);
    if (entry.who === "operator") {
      expect(await statusOf(alice, entry, world)).toBe(403);
      expect(await statusOf(stage.platform.with({ "x-sandlot-user": "alice" }), entry, world)).toBe(403);
    }
    if (entry.who === "owner") {
      const silent = SILENT.has(nameOf(entry));
      const foreign = silent
        ? { status: await statusOf(bob, entry, world), text: "" }
        : await outcome(bob, entry, world);
      expect(foreign.status).toBe(entry.foreign);
      expect(foreign.text).not.toContain(MARKER);
      await alice.with({ "x-sandlot-user": "bob" }).ask(403, "GET", `/v1/threads/${thread}/execs`);
      // Whatever the request was, alice's thread is unchanged.
      const look = { json: { command: `cat secret ${"/mnt/user-data/outputs/report.md"}; ls /mnt/user-data/uploads` } };
      const result = await alice.ask(200, "POST", `/v1/threads/${thread}/exec`, look);
      expect(result.stdout).toBe(`${MARKER}\n# ${MARKER}alices.txt\n`);
      const { execs } = await alice.ask<{ execs: { execId: string; status: string }[] }>(
        200,
        "GET",
        `/v1/threads/${thread}/execs`,
      );
      expect(execs.find(({ execId }) => execId === world.execId)?.status).toBe("running");
    }
    expect(await statusOf(ownerOf(entry), entry, world)).toBe(entry.status);
  });

  test("refuses what is wrong with a code and no 5xx", async () => {
    const world: World = {
      thread: "valid",
      leaseId: "0".repeat(32),
      execId: "x",
      terminalId: "x",
      sandboxId: "none",
      etag: '"x"',
      keyId: "0".repeat(12),
    };
    const [path] = entry.request(world);
    const wrong: (readonly [string, object?])[] = (entry.invalid ?? []).map((json) => [path, { json }]);
    wrong.push(...(entry.invalidPaths?.(world) ?? []).map((bad) => [bad] as const));
    if (entry.url.includes(":thread"))
      wrong.push(...["a.b", "%00", "x".repeat(65), "..%2f"].map((bad) => [path.replace("/valid", `/${bad}`)] as const));
    for (const [address, options] of wrong) {
      const response = await ownerOf(entry).call(entry.method, address, options);
      const text = await response.text();
      expect([
        address,
        JSON.stringify(options),
        response.status >= 400 && response.status < 500 ? "refused" : `${response.status} ${text}`,
      ]).toEqual([address, JSON.stringify(options), "refused"]);
      const { error } = JSON.parse(text) as { error: Record<string, unknown> };
      expect(Object.keys(error).sort()).toEqual(["code", "details", "message", "remedy", "requestId", "retryable"]);
    }
    if ((entry.invalid ?? []).length > 0) {
      const headers = { "content-type": "application/json" };
      const garbled = await ownerOf(entry).call(entry.method, path, { body: "{ no json", headers });
      expect(garbled.status).toBeGreaterThanOrEqual(400);
      expect(garbled.status).toBeLessThan(500);
      const huge = await ownerOf(entry).call(entry.method, path, {
        body: `"${"x".repeat(13 * 1024 * 1024)}"`,
        headers,
      });
      expect([413, 415]).toContain(huge.status);
    }
  });
});
