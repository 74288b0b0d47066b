/**
 * The suite `dashboard`: the pages in Chromium on a gateway with 5,000 sandboxes in memory and 200 events a second.
 *
 *   first view     from the navigation to the first row of the table, against a bare static page of as many bytes
 *   an open page   its longest interaction and longest task from performance traces, its memory before and after
 *   the gateway    what one open page costs it
 */

import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { type Browser, type BrowserContext, type CDPSession, chromium, type Page } from "playwright-core";
import { interleave, type Subject } from "../measuring/interleave.ts";
import { compare, type Result } from "../measuring/result.ts";
import { end, startNode } from "../stage/served-gateway.ts";
import type { Suite, SuiteOptions } from "./suite.ts";

const CHROMIUM = "/usr/bin/chromium";
const SANDBOXES = 5_000;
const EVENTS_PER_SECOND = 200;
const FIRST_VIEW_LIMIT = 3;
/** Of one trace: a longer one would be memory of its own. */
const TRACE_MS = 20_000;
const ROW = '[role="cell"]';

export const suite: Suite = {
  about: [
    `A gateway process with ${SANDBOXES} sandboxes on the memory backend and ${EVENTS_PER_SECOND} events a second; Debian's Chromium without a`,
    "screen, caches cold for each first view. Browser, gateway and this process share the machine's processors.",
  ].join("\n"),
  run: measure,
};

async function* measure({ quick, minutes }: SuiteOptions): AsyncGenerator<Result> {
  if (!existsSync(CHROMIUM)) throw new Error(`${CHROMIUM} is not installed`);
  await using stack = new AsyncDisposableStack();
  execFileSync(process.execPath, [fileURLToPath(new URL("../../packages/dashboard/bundle.mjs", import.meta.url))]);
  const gateway = stack.use(await openGateway());
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
  stack.defer(() => browser.close());
  const signIn = await fetch(`${gateway.url}/v1/dashboard/session`, {
    method: "POST",
    headers: { "x-api-key": gateway.key, "x-sandlot-dashboard": "1" },
  });
  const [name = "", value = ""] = signIn.headers.getSetCookie()[0]?.split(";")[0]?.split("=") ?? [];
  const open = async () => {
    const context = await browser.newContext({ viewport: { width: 1_280, height: 800 } });
    await context.addCookies([{ name, value, url: gateway.url }]);
    return context;
  };

  yield await firstView(browser, open, gateway.url, quick ? 3 : 9);

  console.log(
    `${(await eventsOf(gateway, 3_000)).toFixed(0)} events a second, as a reader of the stream counts them\n`,
  );
  const idle = await gateway.costOf(quick ? 5_000 : 15_000);
  const context = await open();
  const page = await context.newPage();
  await page.goto(`${gateway.url}/sandboxes`);
  await page.locator(ROW).first().waitFor();
  const before = await heapOf(context, page);
  const [cost, watched] = await Promise.all([
    gateway.costOf(minutes * 60_000),
    watch(context, page, Date.now() + minutes * 60_000),
  ]);
  const after = await heapOf(context, page);
  const mb = (bytes: number) => `${(bytes / 1_048_576).toFixed(1)} MB`;
  console.log(
    [
      `an open page, ${minutes} minutes, ${watched.interactions} interactions (filter, order, scroll):`,
      `    longest interaction ${watched.longestInteractionMs.toFixed(0)} ms, longest task ${watched.longestTaskMs.toFixed(0)} ms (performance traces)`,
      `    memory of its scripts ${mb(before)} before, ${mb(after)} after, each after a collection`,
      `the gateway's processor time: ${(idle * 1_000).toFixed(0)} ms a second without a page, ${((cost - idle) * 1_000).toFixed(0)} ms a second for the open page`,
      "",
    ].join("\n"),
  );
  await context.close();
}

async function firstView(
  browser: Browser,
  open: () => Promise<BrowserContext>,
  url: string,
  rounds: number,
): Promise<Result> {
  const sizeBytes = await sizeOf(open, `${url}/sandboxes`);
  console.log(`first view: ${(sizeBytes / 1_024).toFixed(0)} KiB from the gateway, the list of all sandboxes included`);
  await using bare = await barePage(sizeBytes);
  const side = (name: string, address: string, ready: string, make: () => Promise<BrowserContext>): Subject => {
    let context: BrowserContext | null = null;
    return {
      name,
      prepare: async () => {
        context = await make();
      },
      run: async () => {
        const page = await context?.newPage();
        await page?.goto(address, { waitUntil: "commit" });
        await page?.locator(ready).first().waitFor();
      },
      settle: async () => void (await context?.close()),
    };
  };
  const subjects = [
    side("the dashboard's table", `${url}/sandboxes`, ROW, open),
    side("a bare static page", bare.url, "#ready", () => browser.newContext()),
  ];
  const plan = { rounds, batch: 1, timingsPerRound: 1, warmUp: 0 };
  const [ours, theirs] = await interleave(subjects, plan);
  if (ours === undefined || theirs === undefined) throw new Error("A side is missing.");
  const about = "from the navigation to the first row; the static page has as many bytes in one script and one heading";
  return compare({ name: "dashboard-first-view", limit: FIRST_VIEW_LIMIT, about }, ours, theirs);
}

/** Bytes on the wire until the first row is there. */
async function sizeOf(open: () => Promise<BrowserContext>, address: string): Promise<number> {
  const context = await open();
  const page = await context.newPage();
  const session = await context.newCDPSession(page);
  let sizeBytes = 0;
  await session.send("Network.enable");
  session.on("Network.dataReceived", ({ encodedDataLength, dataLength }) => {
    sizeBytes += encodedDataLength || dataLength;
  });
  await page.goto(address);
  await page.locator(ROW).first().waitFor();
  await context.close();
  return sizeBytes;
}

async function barePage(sizeBytes: number) {
  const script = `${"//".padEnd(Math.max(2, sizeBytes - 200), "x")}\nconst h = document.createElement("h1"); h.id = "ready"; h.textContent = "Ready"; document.body.append(h);`;
  const server = createServer((request, response) => {
    const isScript = request.url === "/script.js";
    response.setHeader("content-type", isScript ? "text/javascript" : "text/html");
    response.end(isScript ? script : '<!doctype html><title>Bare</title><body><script src="/script.js"></script>');
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

interface Watched {
  readonly interactions: number;
  readonly longestInteractionMs: number;
  readonly longestTaskMs: number;
}

/** Uses the page as a person would, one thing a second, and traces what it does. */
async function watch(context: BrowserContext, page: Page, until: number): Promise<Watched> {
  const session = await context.newCDPSession(page);
  const seen = { interactions: 0, longestInteractionMs: 0, longestTaskMs: 0 };
  const filter = page.getByLabel("Filter by id, thread, user or blueprint");
  const steps = [
    () => filter.fill("user-7"),
    () => page.getByRole("button", { name: /^State/ }).click(),
    () => filter.fill(""),
    () => page.locator(".table").evaluate((table) => table.scrollBy(0, 20_000)),
    () => page.getByRole("button", { name: /^Thread/ }).click(),
    () => page.locator(".table").evaluate((table) => table.scrollTo(0, 0)),
  ];
  while (Date.now() < until) {
    const events = await traced(session, async () => {
      const stop = Math.min(until, Date.now() + TRACE_MS);
      while (Date.now() < stop) {
        await steps[seen.interactions % steps.length]?.();
        seen.interactions += 1;
        await new Promise((resolve) => setTimeout(resolve, 1_000));
      }
    });
    for (const { name, dur = 0, args } of events) {
      if (name === "RunTask") seen.longestTaskMs = Math.max(seen.longestTaskMs, dur / 1_000);
      const timed = name === "EventTiming" ? (args?.data?.duration ?? 0) : 0;
      seen.longestInteractionMs = Math.max(seen.longestInteractionMs, timed);
    }
  }
  await session.detach();
  return seen;
}

interface TraceEvent {
  readonly name: string;
  readonly dur?: number;
  readonly args?: { readonly data?: { readonly duration?: number } };
}

async function traced(session: CDPSession, work: () => Promise<void>): Promise<readonly TraceEvent[]> {
  const events: TraceEvent[] = [];
  const collect = ({ value }: { value: object[] }) => {
    for (const event of value as TraceEvent[])
      if (event.name === "RunTask" || event.name === "EventTiming") events.push(event);
  };
  session.on("Tracing.dataCollected", collect);
  const categories = "devtools.timeline,disabled-by-default-devtools.timeline";
  await session.send("Tracing.start", { categories, transferMode: "ReportEvents" });
  await work();
  const complete = new Promise((resolve) => session.once("Tracing.tracingComplete", resolve));
  await session.send("Tracing.end");
  await complete;
  session.off("Tracing.dataCollected", collect);
  return events;
}

async function heapOf(context: BrowserContext, page: Page): Promise<number> {
  const session = await context.newCDPSession(page);
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize } = await session.send("Runtime.getHeapUsage");
  await session.detach();
  return usedSize;
}

/** Events a second that a reader of the whole fleet's stream gets. */
async function eventsOf({ url, key }: { readonly url: string; readonly key: string }, ms: number): Promise<number> {
  const stop = new AbortController();
  const headers = { authorization: `Bearer ${key}` };
  const response = await fetch(`${url}/v1/events`, { headers, signal: stop.signal });
  const began = performance.now();
  const timer = setTimeout(() => stop.abort(), ms);
  const decoder = new TextDecoder();
  let count = 0;
  try {
    for await (const piece of response.body ?? []) count += decoder.decode(piece).split("\nevent: ").length - 1;
  } catch (error) {
    if (!stop.signal.aborted) throw error;
  } finally {
    clearTimeout(timer);
  }
  return (count / (performance.now() - began)) * 1_000;
}

async function openGateway() {
  const home = mkdtempSync(join(tmpdir(), "sandlot-dashboard-"));
  const program = fileURLToPath(new URL("../stage/dashboard-gateway.ts", import.meta.url));
  const child = startNode([program, home, String(SANDBOXES), String(EVENTS_PER_SECOND)], process.env, "pipe");
  if (child.stdout === null || child.stdin === null) throw new Error("the gateway has no pipes");
  const { stdin } = child;
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async () => String((await lines.next()).value);
  const { url, key } = JSON.parse(await next()) as { url: string; key: string };
  const used = async () => {
    stdin.write("\n");
    return Number(await next());
  };
  return {
    ...{ url, key },
    /** Processors in use, on average over this time. */
    async costOf(ms: number): Promise<number> {
      const [from, began] = [await used(), performance.now()];
      await new Promise((resolve) => setTimeout(resolve, ms));
      return ((await used()) - from) / 1_000 / (performance.now() - began);
    },
    async [Symbol.asyncDispose]() {
      await end(child);
      rmSync(home, { recursive: true, force: true });
    },
  };
}
