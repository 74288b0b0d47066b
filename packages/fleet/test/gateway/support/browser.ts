/** A real browser (Debian's chromium) of its own for each page, whose profile goes with it. */

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

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
  const browser = spawn(CHROMIUM, [...options, ...more, url], { stdio: ["ignore", "pipe", "ignore"], detached: true });
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

/** What the page shows when it has settled, or when its time is up. */
export function dumpDom(url: string, ...more: string[]): Promise<string> {
  const read = async (browser: ChildProcess) => {
    let shown = "";
    browser.stdout?.on("data", (piece) => (shown += piece));
    await new Promise((resolve) => browser.once("close", resolve));
    return shown;
  };
  return browse(url, read, "--dump-dom", ...more);
}
