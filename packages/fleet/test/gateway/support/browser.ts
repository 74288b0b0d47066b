/** A separate real browser (Debian's chromium) for each page, whose profile goes with it. */

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { WebSocket } from "ws";

const CHROMIUM = "/usr/bin/chromium";
export const missingBrowser = existsSync(CHROMIUM) ? null : `${CHROMIUM} is not installed`;

/** Opens a page until `done` resolves. */
export async function browse<T>(
  url: string,
  done: (browser: ChildProcess) => Promise<T>,
  ...more: string[]
): Promise<T> {
  const profile = await mkdtemp(join(tmpdir(), "sandlot-chromium-"));
  const options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", `--user-data-dir=${profile}`];
  const browser = spawn(CHROMIUM, [...options, ...more, url], { stdio: ["ignore", "pipe", "pipe"], detached: true });
  browser.stderr?.resume();
  const ended = new Promise((resolve) => browser.once("close", resolve));
  try {
    return await done(browser);
  } finally {
    // Its helpers are in its group, and go with it.
    if (browser.pid !== undefined && browser.exitCode === null) process.kill(-browser.pid, "SIGKILL");
    await ended;
    await rm(profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  }
}

/** The content of the page when it has settled, or when its time is up. */
export function dumpDom(url: string, ...more: string[]): Promise<string> {
  const read = async (browser: ChildProcess) => {
    let shown = "";
    browser.stdout?.on("data", (piece) => (shown += piece));
    await new Promise((resolve) => browser.once("close", resolve));
    return shown;
  };
  return browse(url, read, "--dump-dom", ...more);
}

/** One page of a browser, driven by its own protocol: evaluated scripts, real clicks, and its console. */
export interface DrivenPage {
  evaluate<T>(expression: string): Promise<T>;
  /** With the mouse, in the middle of the first element that the selector finds. */
  click(selector: string): Promise<void>;
  /** Errors of the console and of its policies. */
  readonly problems: readonly string[];
}

export function drive<T>(url: string, work: (page: DrivenPage) => Promise<T>): Promise<T> {
  return browse(
    "about:blank",
    async (browser) => {
      const address = await new Promise<string>((resolve) => {
        let said = "";
        browser.stderr?.on("data", (piece) => {
          said += piece;
          const found = /DevTools listening on (\S+)/.exec(said)?.[1];
          if (found !== undefined) resolve(found);
        });
      });
      const pages = (await (await fetch(`http://${new URL(address).host}/json/list`)).json()) as {
        readonly type: string;
        readonly webSocketDebuggerUrl: string;
      }[];
      const page = pages.find(({ type }) => type === "page");
      if (page === undefined) throw new Error("the browser has no page");
      const socket = new WebSocket(page.webSocketDebuggerUrl);
      await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
      try {
        return await work(await pageOver(socket, url));
      } finally {
        socket.close();
      }
    },
    "--remote-debugging-port=0",
  );
}

async function pageOver(socket: WebSocket, url: string): Promise<DrivenPage> {
  const waiting = new Map<number, (result: Record<string, unknown>) => void>();
  const problems: string[] = [];
  let serial = 0;
  socket.on("message", (data) => {
    const { id, method, result, params } = JSON.parse(String(data));
    if (id !== undefined) waiting.get(id)?.(result ?? {});
    else if (method === "Log.entryAdded" && params.entry.level === "error") problems.push(params.entry.text);
    else if (method === "Runtime.exceptionThrown") problems.push(params.exceptionDetails.text);
  });
  const send = (method: string, params: object = {}) =>
    new Promise<Record<string, unknown>>((resolve) => {
      waiting.set(++serial, resolve);
      socket.send(JSON.stringify({ id: serial, method, params }));
    });
  for (const domain of ["Runtime", "Log", "Page"]) await send(`${domain}.enable`);
  await send("Page.navigate", { url });
  const evaluate = async <T>(expression: string) => {
    const { result } = await send("Runtime.evaluate", { expression, returnByValue: true });
    return (result as { readonly value: T }).value;
  };
  const click = async (selector: string) => {
    const middle = `(() => { const element = document.querySelector(${JSON.stringify(selector)});
      element.scrollIntoView({ block: "center" }); const { x, y, width, height } = element.getBoundingClientRect();
      return { x: x + width / 2, y: y + height / 2 }; })()`;
    const at = await evaluate<{ readonly x: number; readonly y: number }>(middle);
    for (const type of ["mousePressed", "mouseReleased"])
      await send("Input.dispatchMouseEvent", { ...at, type, button: "left", clickCount: 1 });
  };
  return { evaluate, click, problems };
}
