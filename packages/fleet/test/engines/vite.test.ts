/**
 * A real Vite dev server in a real sandbox, seen through a preview: pages and modules load, a changed file reaches the
 * browser over Vite's own WebSocket, and a request finds the server also when the sandbox was unheld for a while.
 */

import { existsSync, mkdtempSync, realpathSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocket } from "ws";
import type { Fleet } from "../../src/fleet.ts";
import { type Gateway, startGateway } from "../../src/gateway/start-gateway.ts";
import { openFleetAndHost } from "../../src/open-fleet.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { browse, missingBrowser } from "../gateway/support/browser.ts";
import { hasBubblewrap } from "../gateway/support/gateway-process.ts";
import { previewCookie, requestPreview } from "../gateway/support/preview.ts";
import { Caller } from "../gateway/support/stage.ts";

const PORT = 5_173;
const WORKSPACE = "/mnt/user-data/workspace";
const PAGE = '<!doctype html><body><p id="shown">nothing yet</p><script type="module" src="/main.js"></script></body>';
const moduleText = (word: string) =>
  `export const word = "${word}";\ndocument.querySelector("#shown").textContent = "it says ${word}";\nimport.meta.hot?.accept();\n`;

/** Vitest brings Vite; it lies in the workspace's own packages, with a Node for this machine beside it. */
const packages = dirname(dirname(createRequire(import.meta.url).resolve("vite/package.json")));
const missing = hasBubblewrap ? (existsSync(join(packages, "vite")) ? null : "no Vite is installed") : "no bubblewrap";

let home: string;
let fleet: Fleet;
let gateway: Gateway;
let alice: Caller;

beforeAll(async () => {
  if (missing !== null) return;
  home = mkdtempSync(join(tmpdir(), "slv-"));
  const mounts = [
    { hostPath: packages, sandboxPath: "/opt/node_modules", readOnly: true },
    { hostPath: dirname(realpathSync(process.execPath)), sandboxPath: "/opt/node", readOnly: true },
  ];
  const opened = await openFleetAndHost({ home, backend: "local", blueprints: { default: { mounts } } });
  ({ fleet } = opened);
  const host = opened.hostWorkspaces === null ? {} : { hostWorkspaces: opened.hostWorkspaces };
  gateway = await startGateway({ fleet, home, world: systemWorld(), settings: { port: 0 }, ...host });
  alice = new Caller(gateway.url, (await gateway.keys.create({ scope: "user", user: "alice" })).key);
  await write("index.html", PAGE);
  await write("main.js", moduleText("hello"));
  const command = `/opt/node/node /opt/node_modules/vite/bin/vite.js --host 127.0.0.1 --port ${PORT} --strictPort`;
  const env = { HOME: "/tmp", NODE_PATH: "/opt/node_modules" };
  await alice.ask(202, "POST", "/v1/threads/site/exec", { json: { command, background: true, execId: "vite", env } });
  await alice.ask(204, "POST", `/v1/threads/site/ports/${PORT}/wait`, { json: { timeoutMs: 60_000 } });
}, 90_000);
afterAll(async () => {
  if (missing !== null) return;
  await fleet.destroy({ user: "alice", thread: "site" }, { force: true, purge: true });
  await gateway.close();
  await fleet.close({ destroy: true });
  rmSync(home, { recursive: true });
}, 60_000);

async function write(name: string, content: string): Promise<void> {
  await alice.ask(200, "PUT", `/v1/threads/site/files/content?path=${WORKSPACE}/${name}`, { body: content });
}

async function link(): Promise<URL> {
  const path = `/v1/threads/site/ports/${PORT}/links`;
  return new URL((await alice.ask<{ url: string }>(201, "POST", path, { json: { ttlMs: 120_000 } })).url);
}

test("pages and modules come through, and a change reaches the page without a reload", async (context) => {
  if (missing !== null) return context.skip(missing);
  const url = await link();
  const cookie = await previewCookie(gateway.previewUrl, url);
  const get = async (path: string) => requestPreview(gateway.previewUrl, new URL(path, url), { cookie });
  // Vite first tries whether it may listen on the port, and lets go of it again.
  await expect.poll(async () => (await get("/")).body, { timeout: 60_000 }).toContain("/@vite/client");
  expect((await get("/main.js")).body).toContain('"hello"');
  const client = (await get("/@vite/client")).body;
  const token = /wsToken = "([^"]+)"/.exec(client)?.[1] ?? "";
  expect(token).not.toBe("");

  const socket = new WebSocket(`${gateway.previewUrl.replace("http", "ws")}/?token=${token}`, ["vite-hmr"], {
    headers: { host: url.host, cookie, origin: url.origin },
  });
  const messages: { type: string; updates?: { path: string }[] }[] = [];
  await new Promise<void>((resolve, reject) => {
    socket.on("message", (data) => {
      messages.push(JSON.parse(String(data)));
      resolve();
    });
    socket.once("error", reject);
  });
  expect(messages[0]).toMatchObject({ type: "connected" });
  // A server that has only just begun to listen may not watch its files yet, so the change is repeated until it is
  // seen.
  await untilAsync(async () => {
    await write("main.js", moduleText("changed"));
    await new Promise((resolve) => setTimeout(resolve, 300));
    return messages.some(({ type }) => type === "update");
  });
  expect(messages.find(({ type }) => type === "update")?.updates?.[0]?.path).toBe("/main.js");
  expect((await get("/main.js")).body).toContain('"changed"');
  socket.terminate();
}, 60_000);

test("a browser shows the page, and what has changed while it was open", async (context) => {
  if (missing !== null) return context.skip(missing);
  if (missingBrowser !== null) return context.skip(missingBrowser);
  const said: string[] = [];
  const listener = createServer((request, response) => {
    said.push(decodeURIComponent(request.url ?? ""));
    response.end();
  });
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const to = `http://127.0.0.1:${(listener.address() as AddressInfo).port}/`;
  // The page reports its content and how often it was loaded: a reload would restart the count.
  const telling = (word: string) =>
    `${moduleText(word)}globalThis.times = (globalThis.times ?? 0) + 1;\n` +
    `fetch("${to}" + document.querySelector("#shown").textContent + " " + globalThis.times, { mode: "no-cors" });\n`;
  await write("main.js", telling("before"));
  const url = await link();
  await browse(url.href, async () => {
    await until(() => said.includes("/it says before 1"));
    // The page sends its first report before its WebSocket is open, and receives nothing until then.
    await untilAsync(async () => {
      await write("main.js", telling("after"));
      await new Promise((resolve) => setTimeout(resolve, 500));
      return said.some((word) => /^\/it says after ([2-9]|\d\d)$/.test(word));
    });
    expect(
      said.filter((word) => word.endsWith(" 1")),
      "pages loaded",
    ).toEqual(["/it says before 1"]);
  });
  listener.closeAllConnections();
  await new Promise((resolve) => listener.close(resolve));
}, 90_000);

test("a request wakes a sandbox that nobody holds", async (context) => {
  if (missing !== null) return context.skip(missing);
  const url = await link();
  const state = async () => (await fleet.list()).find(({ thread }) => thread === "site")?.state;
  await untilAsync(async () => (await state()) === "parked");
  const cookie = await previewCookie(gateway.previewUrl, url);
  const { status, body } = await requestPreview(gateway.previewUrl, new URL("/main.js", url), { cookie });
  expect([status, body.includes("it says")]).toEqual([200, true]);
  await untilAsync(async () => (await state()) === "parked");
}, 60_000);

function until(isSo: () => boolean): Promise<void> {
  return untilAsync(async () => isSo());
}

async function untilAsync(isSo: () => Promise<boolean>): Promise<void> {
  for (let tries = 0; !(await isSo()); tries += 1) {
    if (tries > 1_000) throw new Error("it did not become so");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
