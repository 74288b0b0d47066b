/**
 * Web pages in a real browser (Debian's chromium): requests of a page of another origin get 403, also under a name that
 * was made to point here, and by a WebSocket; and a preview works with its link, its cookie and hot reload's WebSocket.
 */

import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocketServer } from "ws";
import { browse, drive, dumpDom, missingBrowser as missing } from "../gateway/support/browser.ts";
import { richBackend } from "../gateway/support/rich-backend.ts";
import { type Caller, openStage, type Stage } from "../gateway/support/stage.ts";

let stage: Stage;
let alice: Caller;
let page: Server;
let html = "";
let reported: (results: Record<string, unknown>) => void = () => undefined;

beforeAll(async () => {
  stage = await openStage({ enrich: richBackend });
  alice = await stage.user("alice");
  page = createServer((request, response) => {
    let body = "";
    request.on("data", (piece) => (body += piece));
    request.on("end", () => {
      if (request.url === "/report") reported(JSON.parse(body));
      response.writeHead(200, { "content-type": "text/html" }).end(html);
    });
  });
  new WebSocketServer({ server: page }).on("connection", (socket) => socket.send("hot"));
  await new Promise<void>((resolve) => page.listen(0, "127.0.0.1", resolve));
});
afterAll(async () => {
  await stage.done();
  page.closeAllConnections();
  await new Promise((resolve) => page.close(resolve));
});

/** The reports of the page. */
function report(url: string): Promise<Record<string, unknown>> {
  return browse(url, () => new Promise((resolve) => (reported = resolve)));
}

const portOf = (server: Server) => (server.address() as AddressInfo).port;

test("a page of another origin gets nothing from the gateway", async (context) => {
  if (missing !== null) return context.skip(missing);
  const { port } = new URL(stage.gateway.url);
  const target = stage.gateway.url;
  html = `<body>waiting<script>
    const key = ${JSON.stringify(alice.key)};
    const form = new FormData();
    form.append("files", new Blob(["evil"]), "evil.txt");
    const tries = {
      upload: () => fetch("${target}/v1/threads/web/uploads", { method: "POST", body: form, mode: "no-cors" }).then((r) => r.type),
      simple: () => fetch("${target}/v1/threads/web/exec", { method: "POST", body: "{}", mode: "no-cors" }).then((r) => r.type),
      withKey: () => fetch("${target}/v1/threads/web/execs", { headers: { "x-api-key": key } }).then((r) => "read " + r.status),
      read: () => fetch("${target}/healthz").then((r) => "read " + r.status),
      socket: () => new Promise((resolve) => {
        const socket = new WebSocket("ws://127.0.0.1:${port}/v1/threads/web/terminal", ["sandlot.v1", "sandlot.key." + key]);
        socket.onopen = () => resolve("open");
        socket.onerror = () => resolve("refused");
      }),
    };
    (async () => {
      const results = {};
      for (const [name, run] of Object.entries(tries)) results[name] = await run().catch((error) => "refused");
      fetch("/report", { method: "POST", body: JSON.stringify(results) });
    })();
  </script></body>`;
  const results = await report(`http://localhost:${portOf(page)}/`);
  // The page does not even see that there was a response; the audit log has it.
  expect(results).toEqual({
    upload: "refused",
    simple: "refused",
    withKey: "refused",
    read: "refused",
    socket: "refused",
  });
  const { entries } = await stage.operator.ask<{ entries: { status: number; route: string; keyId: unknown }[] }>(
    200,
    "GET",
    "/v1/audit",
  );
  const answers = entries.filter(({ keyId }) => keyId === null).map(({ route, status }) => `${status} ${route}`);
  expect(answers).toContain("403 /v1/threads/:thread/uploads");
  expect(answers).toContain("403 /v1/threads/:thread/terminal");
  expect(answers.filter((answer) => !answer.startsWith("403"))).toEqual([]);
  expect(await stage.fleet.list()).toEqual([]);
}, 90_000);

test("a name that was made to point here gets nothing either", async (context) => {
  if (missing !== null) return context.skip(missing);
  const { port } = new URL(stage.gateway.url);
  expect(await dumpDom(`http://rebound.localhost:${port}/healthz`)).toContain("not known under that Host");
}, 90_000);

test("a preview opens from its link, keeps its cookie, and carries a WebSocket", async (context) => {
  if (missing !== null) return context.skip(missing);
  html = `<body>waiting<script>
    (async () => {
      const second = await fetch("/second").then((r) => r.status);
      const hot = await new Promise((resolve) => {
        const socket = new WebSocket("ws://" + location.host + "/hmr");
        socket.onmessage = ({ data }) => resolve(data);
        socket.onerror = () => resolve("refused");
      });
      const gateway = await fetch("${stage.gateway.url}/healthz").then((r) => r.status, () => "refused");
      fetch("/report", { method: "POST", body: JSON.stringify({ second, hot, gateway, address: location.search, cookie: document.cookie }) });
    })();
  </script></body>`;
  await alice.ask(200, "POST", "/v1/threads/shown/exec", { json: { command: "true" } });
  const { url } = await alice.ask<{ url: string }>(201, "POST", `/v1/threads/shown/ports/${portOf(page)}/links`, {
    json: {},
  });
  const results = await report(url);
  expect(results).toEqual({ second: 200, hot: "hot", gateway: "refused", address: "", cookie: "" });
}, 90_000);

test("the pages of documentation work with a key typed as a password, and with nothing from elsewhere", async (context) => {
  if (missing !== null) return context.skip(missing);
  const { host } = new URL(stage.gateway.url);
  const shown = await dumpDom(`http://key:${alice.key}@${host}/docs/`, "--virtual-time-budget=15000");
  expect(shown).toContain("Run a command");
}, 90_000);

test("an operation of the documentation opens when it is clicked, and closes again, with no error of the policy", async (context) => {
  if (missing !== null) return context.skip(missing);
  const { host } = new URL(stage.gateway.url);
  await drive(`http://key:${alice.key}@${host}/docs/`, async (page) => {
    const operation = "#operations-exec-exec";
    const isOpen = () =>
      page.evaluate<boolean>(`document.querySelector("${operation}.is-open .opblock-body") !== null`);
    const isThere = () => page.evaluate<boolean>(`document.querySelector("${operation}") !== null`);
    await expect.poll(isThere, { timeout: 60_000 }).toBe(true);
    expect(await isOpen()).toBe(false);
    await page.click(`${operation} .opblock-summary-control`);
    await expect.poll(isOpen, { timeout: 30_000 }).toBe(true);
    expect(await page.evaluate<string>(`document.querySelector("${operation}").innerText`)).toContain("outputMaxBytes");
    await page.click(`${operation} .opblock-summary-control`);
    await expect.poll(isOpen, { timeout: 30_000 }).toBe(false);
    expect(await page.evaluate<number>('document.querySelectorAll(".topbar").length')).toBe(0);
    expect(page.problems).toEqual([]);
  });
}, 120_000);
