/**
 * The dashboard in Debian's Chromium, against a gateway process with real sandboxes. Its files are built anew, from the
 * present source.
 *
 * A page fails its test when the browser reports an error in it, a request to another origin, or a violation of its
 * policy.
 */

import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import axe from "axe-core";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { expect } from "vitest";
import { type GatewayProcess, hasBubblewrap, startGatewayProcess } from "../../gateway/support/gateway-process.ts";
import { Caller } from "../../gateway/support/stage.ts";

const CHROMIUM = "/usr/bin/chromium";
const DASHBOARD = fileURLToPath(new URL("../../../../dashboard", import.meta.url));
/** Its own requests to its maker's hosts are switched off. */
const ARGUMENTS = [
  ...["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"],
  ...["--disable-background-networking", "--disable-component-update", "--disable-sync"],
];
/** Of the page itself, and of the browser's own viewer of PDF. */
const OWN_PROTOCOLS = new Set(["blob:", "data:", "chrome:", "chrome-extension:"]);
/** Where the screenshots of the documents go; absent: none are made. */
const SHOTS = process.env.SANDLOT_SCREENSHOTS;

export const missing = existsSync(CHROMIUM)
  ? hasBubblewrap
    ? null
    : "bubblewrap is not installed"
  : `${CHROMIUM} is not installed`;

export interface OpenedPage {
  readonly page: Page;
  readonly context: BrowserContext;
  /** What the browser reported, beside refused requests that the page shows itself. */
  readonly problems: string[];
}

export interface PageOptions {
  readonly theme?: "light" | "dark";
  readonly isPhone?: boolean;
  /** Frames of previews may load from their own origins. */
  readonly hasPreviews?: boolean;
}

export class DashboardStage {
  readonly home: string;
  readonly #browser: Browser;
  #gateway: GatewayProcess;

  private constructor(home: string, browser: Browser, gateway: GatewayProcess) {
    this.home = home;
    this.#browser = browser;
    this.#gateway = gateway;
  }

  static async open(): Promise<DashboardStage> {
    execFileSync(process.execPath, [join(DASHBOARD, "bundle.mjs")], { stdio: "inherit" });
    const home = mkdtempSync(join(tmpdir(), "sld-"));
    const gateway = await startGatewayProcess(home);
    return new DashboardStage(home, await chromium.launch({ executablePath: CHROMIUM, args: ARGUMENTS }), gateway);
  }

  get url(): string {
    return this.#gateway.url;
  }

  get operator(): Caller {
    return new Caller(this.url, this.#gateway.key);
  }

  async user(name: string): Promise<Caller & { readonly id: string }> {
    const made = await this.operator.ask<{ id: string; key: string }>(201, "POST", "/v1/keys", {
      json: { scope: "user", user: name },
    });
    return Object.assign(new Caller(this.url, made.key), { id: made.id });
  }

  exec(caller: Caller, thread: string, command: string): Promise<unknown> {
    return caller.ask(200, "POST", `/v1/threads/${thread}/exec`, { json: { command } });
  }

  async open(path = "/", options: PageOptions = {}): Promise<OpenedPage> {
    const context = await this.#browser.newContext({
      viewport: options.isPhone === true ? { width: 390, height: 844 } : { width: 1280, height: 800 },
      colorScheme: options.theme ?? "light",
      acceptDownloads: true,
    });
    // Finds hangs: a page waits for programs of a machine that may be busy.
    context.setDefaultTimeout(60_000);
    const page = await context.newPage();
    const problems: string[] = [];
    page.on("pageerror", ({ message }) => problems.push(`error: ${message}`));
    page.on("console", (message) => {
      const text = message.text();
      // A refused request is told by the page, which the tests look at.
      if (message.type() === "error" && !text.startsWith("Failed to load resource")) problems.push(text);
    });
    page.on("request", (request) => {
      const { origin, protocol, hostname } = new URL(request.url());
      if (options.hasPreviews === true && hostname.endsWith(".localhost")) return;
      if (!OWN_PROTOCOLS.has(protocol) && origin !== this.url) problems.push(`asks ${request.url()}`);
    });
    await page.goto(`${this.url}${path}`);
    return { page, context, problems };
  }

  /** A page that is signed in with this key. */
  async signedIn(caller: Caller, path = "/", options: PageOptions = {}): Promise<OpenedPage> {
    const opened = await this.open(path, options);
    await opened.page.getByLabel("Key", { exact: true }).fill(caller.key);
    await opened.page.getByRole("button", { name: "Sign in" }).click();
    await opened.page.getByRole("button", { name: "Sign out" }).waitFor();
    return opened;
  }

  /** Kills the gateway as a crash would, and starts another one at the same address. */
  async restart(meanwhile: () => Promise<void>): Promise<void> {
    const port = Number(new URL(this.url).port);
    await this.#gateway.kill();
    await meanwhile();
    this.#gateway = await startGatewayProcess(this.home, { port });
  }

  async done(threads: readonly (readonly [Caller, string])[]): Promise<void> {
    await this.#browser.close();
    for (const [caller, thread] of threads) await caller.call("DELETE", `/v1/threads/${thread}?force=true`);
    await this.#gateway.stop();
    rmSync(this.home, { recursive: true, force: true, maxRetries: 5 });
  }
}

export async function shot(page: Page, name: string): Promise<void> {
  if (SHOTS !== undefined) await page.screenshot({ path: join(SHOTS, `${name}.png`) });
}

/** The text that a terminal shows. */
export async function screenOf(page: Page): Promise<string> {
  return (await page.locator(".xterm-rows > div").allTextContents()).join("\n");
}

/** The value of an expression in the page. The page's policy refuses scripts from text, so the browser runs it itself. */
export async function evaluate<T>(
  { context, page }: Pick<OpenedPage, "context" | "page">,
  expression: string,
): Promise<T> {
  const session = await context.newCDPSession(page);
  const { result, exceptionDetails } = await session.send("Runtime.evaluate", {
    ...{ expression, awaitPromise: true, returnByValue: true },
    allowUnsafeEvalBlockedByCSP: true,
  });
  await session.detach();
  if (exceptionDetails !== undefined) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  return result.value as T;
}

const RULES = '["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]';

/** What axe-core finds on the page, by rule and place. */
export async function axeFindings(opened: Pick<OpenedPage, "context" | "page">): Promise<string[]> {
  await evaluate(opened, `${axe.source}; null`);
  const found = await evaluate<string[]>(
    opened,
    `axe.run(document, { runOnly: ${RULES} }).then(({ violations }) => violations.flatMap(({ id, nodes }) =>` +
      ` nodes.map(({ target, failureSummary }) => id + " at " + target.join(" ") + ": " + failureSummary)))`,
  );
  expect(Array.isArray(found)).toBe(true);
  return found;
}
