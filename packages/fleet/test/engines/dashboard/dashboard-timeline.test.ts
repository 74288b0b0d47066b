/** The timeline of a thread as people use it: in a real browser, with real sandboxes, and as a file from a disk. */

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { TimelinePage } from "@sandlot/contract";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { runCli } from "../../cli/run-cli.ts";
import type { Caller } from "../../gateway/support/stage.ts";
import { killSandbox } from "./dashboard-kill.ts";
import { axeFindings, DashboardStage, evaluate, missing, type OpenedPage, screenOf, shot } from "./dashboard-stage.ts";

const HIT = "globalThis.hits=(globalThis.hits??0)+1";
/** Each runs a script in a page that takes it for markup. */
const HOSTILE = [
  `<img src=x onerror="${HIT}">`,
  `</summary></details><svg onload="${HIT}">`,
  `"><script>${HIT}</script>`,
  `</style></title><iframe srcdoc="<script>top.hits=1</script>"></iframe>`,
];

let stage: DashboardStage;
let alice: Caller;
let files: string;

beforeAll(async () => {
  if (missing !== null) return;
  files = mkdtempSync(join(tmpdir(), "sandlot-export-"));
  stage = await DashboardStage.open();
  alice = await stage.user("alice");
  const json = { command: "echo hello; seq 1 20000; exit 3", execId: "counted" };
  await alice.ask(200, "POST", "/v1/threads/work/exec", { json });
});
afterAll(async () => {
  if (missing !== null) return;
  await stage.done(["work", "typed", "lost", "hostile"].map((thread) => [alice, thread] as const));
  rmSync(files, { recursive: true, force: true });
});

const rows = (page: Page) => page.getByRole("region", { name: "Entries, the newest first" });

test("a command has its exit code, and its output by offset, a part at a time", async (context) => {
  if (missing !== null) return context.skip(missing);
  const { page, problems, context: browser } = await stage.signedIn(alice, "/threads/alice/work?tab=timeline");
  await rows(page)
    .getByRole("button", { name: /seq 1 20000.*exit 3/ })
    .click();
  await page.getByRole("button", { name: "Show its output" }).click();
  await page.getByText(/^stdout: \d+ of \d+ bytes$/).waitFor();
  const output = () => page.getByRole("region", { name: "stdout" }).textContent();
  await expect.poll(output, { timeout: 60_000 }).toMatch(/^hello\n1\n2\n/);
  await page.getByRole("button", { name: "Show more" }).click();
  await expect.poll(output, { timeout: 60_000 }).toMatch(/\n19999\n20000\n?$/);
  expect(problems).toEqual([]);
  await browser.close();
});

test("a command typed into a terminal is there as it ends, and a filter hides it", async (context) => {
  if (missing !== null) return context.skip(missing);
  await stage.exec(alice, "typed", "true");
  const opened = await stage.signedIn(alice, "/threads/alice/typed?tab=terminal");
  const { page, problems } = opened;
  const timeline = await opened.context.newPage();
  await timeline.goto(`${stage.url}/threads/alice/typed?tab=timeline`);
  await rows(timeline).waitFor();
  await expect.poll(() => screenOf(page), { timeout: 60_000 }).toContain("$");
  await page.keyboard.type("echo typed-$((6*7)); (exit 5)\n");
  await expect.poll(() => screenOf(page), { timeout: 60_000 }).toContain("typed-42");
  // The marks of the shell show nothing by themselves.
  expect(await screenOf(page)).not.toContain("633;");
  await rows(timeline)
    .getByRole("button", { name: /echo typed-\$\(\(6\*7\)\); \(exit 5\) → exit 5/ })
    .waitFor();
  await timeline.getByLabel("Commands").uncheck();
  await rows(timeline)
    .getByRole("button", { name: /typed-/ })
    .waitFor({ state: "detached" });
  await timeline.getByLabel("Commands").check();
  await rows(timeline)
    .getByRole("button", { name: /typed-/ })
    .waitFor();
  expect(problems).toEqual([]);
  await opened.context.close();
});

test("a killed sandbox is told, with what it took along and the next generation", async (context) => {
  if (missing !== null) return context.skip(missing);
  await stage.exec(alice, "lost", "true");
  const { page, problems, context: browser } = await stage.signedIn(alice, "/threads/alice/lost?tab=timeline");
  await rows(page)
    .getByRole("button", { name: /made in/ })
    .waitFor();
  const running = stage.exec(alice, "lost", "echo started > here; sleep 300").catch(() => null);
  await rows(page)
    .getByRole("button", { name: /sleep 300 \(running\)/ })
    .waitFor();
  await killSandbox(alice, "lost");
  await running;
  await rows(page)
    .getByRole("button", { name: /the sandbox died/ })
    .waitFor();
  await rows(page)
    .getByRole("button", { name: /sleep 300 → sandbox_lost/ })
    .waitFor();
  await stage.exec(alice, "lost", "cat here");
  await rows(page)
    .getByRole("button", { name: /cat here → exit 0/ })
    .waitFor();
  const { entries } = await alice.ask<TimelinePage>(200, "GET", "/v1/threads/lost/timeline?kind=sandbox");
  expect(new Set(entries.filter(({ what }) => what === "created").map(({ generation }) => generation)).size).toBe(2);
  expect(problems).toEqual([]);
  await browser.close();
});

test("it survives a gateway that is killed", async (context) => {
  if (missing !== null) return context.skip(missing);
  await stage.exec(alice, "work", "echo before-the-crash");
  await expect
    .poll(async () => JSON.stringify(await alice.ask(200, "GET", "/v1/threads/work/timeline")), { timeout: 60_000 })
    .toContain("before-the-crash");
  await stage.restart(async () => undefined);
  const { entries } = await alice.ask<TimelinePage>(200, "GET", "/v1/threads/work/timeline?limit=1000");
  expect(JSON.stringify(entries)).toContain("before-the-crash");
  await stage.exec(alice, "work", "echo after-the-crash");
  const later = await alice.ask<TimelinePage>(200, "GET", "/v1/threads/work/timeline?limit=1000");
  expect(new Set(later.entries.map(({ instance }) => instance)).size).toBe(2);
});

test("usage is drawn while the sandbox is held, and looking does not hold it", async (context) => {
  if (missing !== null) return context.skip(missing);
  const { page, problems, context: browser } = await stage.signedIn(alice, "/threads/alice/work?tab=state");
  await page.getByText("Nothing holds the sandbox").waitFor();
  const busy = stage.exec(alice, "work", "sleep 8");
  await page.getByRole("img", { name: /^Memory over the last five minutes, now \d/ }).waitFor();
  await busy;
  await page.getByText("Nothing holds the sandbox").waitFor();
  await page.getByText(/If nothing changes, it ends|Nothing will end it/).waitFor();
  expect(problems).toEqual([]);
  await browser.close();
});

describe("hostile commands", () => {
  const hits = (opened: Pick<OpenedPage, "page" | "context">) => evaluate<number>(opened, "globalThis.hits ?? 0");

  test("run no script in the page, nor in an export that is opened from a disk", async (context) => {
    if (missing !== null) return context.skip(missing);
    for (const text of HOSTILE) await stage.exec(alice, "hostile", `: '${text}'`);
    const opened = await stage.signedIn(alice, "/threads/alice/hostile?tab=timeline");
    const { page, problems } = opened;
    const details = page.getByRole("region", { name: "Details of the entry" });
    for (const text of HOSTILE) {
      // A new entry moves the rows, so that a click may meet another one.
      const choose = async () => {
        await rows(page).getByRole("button").filter({ hasText: text }).first().click();
        return details.getByText(text, { exact: false }).count();
      };
      await expect.poll(choose, { timeout: 60_000, interval: 500 }).toBeGreaterThan(0);
    }
    expect(await hits(opened)).toBe(0);
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name: "Save as a page" }).click(),
    ]);
    const path = join(files, download.suggestedFilename());
    await download.saveAs(path);
    expect(problems).toEqual([]);
    const tab = await opened.context.newPage();
    const asked: string[] = [];
    tab.on("request", (request) => asked.push(request.url()));
    await tab.goto(pathToFileURL(path).href);
    await tab.getByRole("heading", { name: "Timeline of alice/hostile" }).waitFor();
    for (const text of HOSTILE)
      expect(await tab.locator("summary").filter({ hasText: text }).count()).toBeGreaterThan(0);
    await tab.locator("summary").last().click();
    await tab.waitForTimeout(1_000);
    expect(await hits({ page: tab, context: opened.context })).toBe(0);
    expect(await tab.locator("script, iframe, img").count()).toBe(0);
    expect(asked).toEqual([pathToFileURL(path).href]);
    expect(await axeFindings({ page: tab, context: opened.context })).toEqual([]);
    // The control: the same text as markup does run.
    for (const text of HOSTILE.slice(0, 2)) {
      const control = await stage.open("/healthz");
      await control.page.setContent(`<body><details open><summary>${text}</summary></details></body>`);
      await expect.poll(() => hits(control), { message: text }).toBeGreaterThan(0);
      await control.context.close();
    }
    await opened.context.close();
  });
});

describe.each(["light", "dark"] as const)("axe-core finds nothing, %s:", (theme) => {
  test("on the timeline, with the details of an entry", async (context) => {
    if (missing !== null) return context.skip(missing);
    const opened = await stage.signedIn(alice, "/threads/alice/work?tab=timeline", { theme });
    await rows(opened.page).getByRole("button").first().waitFor();
    await shot(opened.page, `timeline-${theme}`);
    await rows(opened.page)
      .getByRole("button", { name: /→ exit/ })
      .first()
      .click();
    await opened.page.getByRole("region", { name: "Details of the entry" }).waitFor();
    expect(await axeFindings(opened)).toEqual([]);
    await opened.page.goto(`${stage.url}/threads/alice/work?tab=state`);
    await opened.page.getByRole("heading", { name: "Usage" }).waitFor();
    await shot(opened.page, `usage-${theme}`);
    expect(await axeFindings(opened)).toEqual([]);
    expect(opened.problems).toEqual([]);
    await opened.context.close();
  });
});

test("the command line shows it, follows a filter and writes the export", async (context) => {
  if (missing !== null) return context.skip(missing);
  const environment = { SANDLOT_URL: stage.url, SANDLOT_API_KEY: alice.key };
  const cli = (...words: string[]) => runCli(["timeline", ...words], environment);
  expect((await cli("work", "-k", "command")).stdout).toMatch(/command +echo hello; seq 1 20000; exit 3 → exit 3 in /);
  const { entries } = JSON.parse((await cli("work", "--json", "-k", "command")).stdout);
  expect(entries[0]).toMatchObject({ kind: "command", facts: { exitCode: 3 } });
  const path = join(files, "cli.html");
  expect((await cli("-t", "work", "--export", path)).code).toBe(0);
  expect(readFileSync(path, "utf8")).toContain("seq 1 20000");
  expect((await cli("work", "--export", path)).code).toBe(1);
  expect((await cli("no-such-thread")).stderr).toContain("thread_not_found");
  expect((await cli("work", "-k", "everything")).stderr).toContain("is one of lease, command");
});
