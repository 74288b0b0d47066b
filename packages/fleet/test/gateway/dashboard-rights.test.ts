/**
 * A session of a user against every operation of the API, as the API's own document lists them: a new route is asked
 * like all others, whoever adds it. Another user's things are refused, and nothing of them is in any answer or stream.
 */

import { afterAll, beforeAll, expect, test } from "vitest";
import { richBackend } from "./support/rich-backend.ts";
import { type Caller, openStage, type Stage } from "./support/stage.ts";

const SECRET = "only-bob-knows";
const THREAD = "bobs-thread";
/** That alice's requests do not name: lists and streams would have to say it by themselves. */
const OTHER = "bobs-other";
/** How long a stream may say something. */
const READ_MS = 1_500;
const READ_MAX = 256 * 1_024;

interface Operation {
  readonly method: string;
  readonly path: string;
  readonly isOpen: boolean;
}

let stage: Stage;
let bob: Caller;
let cookie: string;
let operations: readonly Operation[];
let ids: Readonly<Record<string, string>>;

beforeAll(async () => {
  const rate = {
    perKeyPerSecond: 100_000,
    perUserPerSecond: 100_000,
    burst: 100_000,
    perAddressFailuresPerMinute: 1e5,
  };
  stage = await openStage({ enrich: richBackend, settings: { rate } });
  bob = await stage.user("bob");
  const alice = await stage.user("alice");
  const run = (json: object) => bob.ask<{ execId: string }>(200, "POST", `/v1/threads/${THREAD}/exec`, { json });
  await run({ command: `echo ${SECRET}; echo ${SECRET} > ${SECRET}.txt` });
  const lease = await bob.ask<{ leaseId: string; sandboxId: string }>(201, "POST", `/v1/threads/${THREAD}/leases`, {
    json: { purpose: SECRET, ttlMs: 600_000 },
  });
  const exec = await bob.ask<{ execId: string }>(202, "POST", `/v1/threads/${THREAD}/exec`, {
    json: { command: `while :; do echo ${SECRET}; sleep 0.2; done`, background: true },
  });
  ids = { thread: THREAD, id: lease.leaseId, sandboxId: lease.sandboxId, execId: exec.execId, port: "8000" };
  const document = await stage.operator.ask<{
    paths: Record<string, Record<string, { readonly security?: readonly object[] }>>;
  }>(200, "GET", "/openapi.json");
  operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { security }]) => ({
      ...{ method: method.toUpperCase(), path, isOpen: security !== undefined && security.length === 0 },
    })),
  );
  const response = await fetch(`${stage.gateway.url}/v1/dashboard/session`, {
    method: "POST",
    headers: { "x-api-key": alice.key, "x-sandlot-dashboard": "1" },
  });
  cookie = response.headers.getSetCookie()[0]?.split(";")[0] ?? "";
});
afterAll(async () => {
  // What the requests left is ended here, not waited for.
  for (const { user, thread } of await stage.fleet.list())
    if (user !== null && thread !== null) await stage.fleet.destroy({ user, thread }, { force: true });
  await stage.done();
});

/** With bob's own ids in the place of every parameter. */
function addressOf({ path }: Operation): string {
  const filled = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(ids[name] ?? `${SECRET}.txt`));
  const query = /\/files\//.test(path) ? `?path=/mnt/user-data/workspace/${SECRET}.txt` : "";
  return `${stage.gateway.url}${filled}${query}`;
}

async function ask(operation: Operation, headers: Record<string, string>): Promise<{ status: number; text: string }> {
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), READ_MS);
  const hasBody = !["GET", "HEAD", "DELETE"].includes(operation.method);
  let text = "";
  let status = 0;
  try {
    const response = await fetch(addressOf(operation), {
      method: operation.method,
      headers: {
        "x-sandlot-dashboard": "1",
        accept: "*/*",
        ...headers,
        ...(hasBody && { "content-type": "application/json" }),
      },
      ...(hasBody && { body: "{}" }),
      signal: stop.signal,
    });
    status = response.status;
    const decoder = new TextDecoder();
    for await (const piece of response.body ?? []) {
      text += decoder.decode(piece, { stream: true });
      if (text.length > READ_MAX) break;
    }
  } catch (error) {
    // A stream that says nothing is cut off.
    if (!stop.signal.aborted) throw error;
  } finally {
    clearTimeout(timer);
    stop.abort();
  }
  return { status, text };
}

test("the document has the routes of a gateway, and few that need no key", () => {
  expect(operations.length).toBeGreaterThan(80);
  expect(operations.filter(({ isOpen }) => isOpen).map(({ path }) => path)).toEqual([
    ...["/healthz", "/readyz", "/health", "/v1/dashboard/links/use"],
  ]);
});

test("naming another user is refused by every operation that needs a key", async () => {
  const answers: string[] = [];
  for (const operation of operations.filter(({ isOpen }) => !isOpen)) {
    const { status } = await ask(operation, { cookie, "x-sandlot-user": "bob" });
    if (status !== 403) answers.push(`${operation.method} ${operation.path}: ${status}`);
  }
  expect(answers).toEqual([]);
}, 120_000);

test("without the session, or without the dashboard's header, every one of them is refused", async () => {
  const answers: string[] = [];
  for (const operation of operations.filter(({ isOpen }) => !isOpen)) {
    const none = await ask(operation, {});
    const bare = await fetch(addressOf(operation), { method: operation.method, headers: { cookie } });
    await bare.body?.cancel();
    const isDocument = operation.path === "/openapi.json";
    if (none.status !== 401 || (bare.status !== 403 && !isDocument))
      answers.push(`${operation.method} ${operation.path}: ${none.status} ${bare.status}`);
  }
  expect(answers).toEqual([]);
}, 120_000);

test("no answer and no stream says anything of another user, while that one works", async () => {
  let isWorking = true;
  const working = (async () => {
    while (isWorking) {
      await bob.call("POST", `/v1/threads/${OTHER}/exec`, { json: { command: `echo ${SECRET}` } });
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  })();
  const told: string[] = [];
  try {
    // Not what ends the session that asks.
    const asked = operations.filter(({ method, path }) => !(method === "DELETE" && path.endsWith("/session")));
    await Promise.all(
      asked.map(async (operation) => {
        const { text } = await ask(operation, { cookie });
        // An error may repeat the path that was asked for.
        const unasked = text.replaceAll(`${SECRET}.txt`, "");
        if (unasked.includes(SECRET) || unasked.includes(OTHER))
          told.push(`${operation.method} ${operation.path}: ${text.slice(0, 300)}`);
      }),
    );
  } finally {
    isWorking = false;
    await working;
  }
  expect(told).toEqual([]);
  const left = await bob.ask<{ stdout: string }>(200, "POST", `/v1/threads/${THREAD}/exec`, {
    json: { command: `cat ${SECRET}.txt` },
  });
  expect(left.stdout).toBe(`${SECRET}\n`);
}, 120_000);

test("the control: the same requests by that user do say it", async () => {
  const response = await fetch(`${stage.gateway.url}/v1/dashboard/session`, {
    method: "POST",
    headers: { "x-api-key": bob.key, "x-sandlot-dashboard": "1" },
  });
  const own = response.headers.getSetCookie()[0]?.split(";")[0] ?? "";
  const said: string[] = [];
  for (const operation of operations.filter(({ method }) => method === "GET")) {
    const { text } = await ask(operation, { cookie: own });
    if (text.includes(SECRET)) said.push(operation.path);
  }
  expect(said).toEqual(
    expect.arrayContaining([
      "/v1/threads/{thread}/files/content",
      "/v1/threads/{thread}/explain",
      "/v1/threads/{thread}/execs",
    ]),
  );
}, 120_000);
