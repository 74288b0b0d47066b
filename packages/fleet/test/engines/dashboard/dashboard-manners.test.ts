/** The dashboard without a mouse, on a phone, and for who runs it: palette, administration, what a page costs. */

import { afterAll, beforeAll, expect, test } from "vitest";
import type { Caller } from "../../gateway/support/stage.ts";
import { axeFindings, DashboardStage, evaluate, missing } from "./dashboard-stage.ts";

/** Of scripts, styles and the page itself, compressed, before anything is opened. */
const FIRST_VIEW_MAX_BYTES = 500_000;

let stage: DashboardStage;
let alice: Caller;

beforeAll(async () => {
  if (missing !== null) return;
  stage = await DashboardStage.open();
  alice = await stage.user("alice");
  await stage.exec(alice, "palette-thread", "true");
});
afterAll(async () => {
  if (missing === null)
    await stage.done([
      [alice, "palette-thread"],
      [alice, "begun"],
    ]);
});

test("the first view is small, and the terminal and viewers come when they are opened", async (context) => {
  if (missing !== null) return context.skip(missing);
  const { page, context: browser } = await stage.open("/");
  const session = await browser.newCDPSession(page);
  await session.send("Network.enable");
  await session.send("Network.setCacheDisabled", { cacheDisabled: true });
  let sizeBytes = 0;
  const names: string[] = [];
  session.on("Network.loadingFinished", ({ encodedDataLength }) => {
    sizeBytes += encodedDataLength;
  });
  page.on("request", (request) => names.push(new URL(request.url()).pathname));
  await page.reload();
  await page.getByLabel("Key", { exact: true }).fill(alice.key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  console.log(`first view: ${sizeBytes} bytes in ${names.length} requests`);
  expect(sizeBytes).toBeGreaterThan(50_000);
  expect(sizeBytes).toBeLessThan(FIRST_VIEW_MAX_BYTES);
  expect(names.join()).not.toMatch(/terminal|markdown|code-|delimited/);
  await browser.close();
});

test("the palette leads to pages, threads and settings with the keyboard alone", async (context) => {
  if (missing !== null) return context.skip(missing);
  const opened = await stage.signedIn(stage.operator, "/");
  const { page, problems, context: browser } = opened;
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: /Go to a page/ }).waitFor();
  expect(await axeFindings(opened)).toEqual([]);
  await page.keyboard.type("palette-thr");
  await page.getByRole("option", { name: /palette-thread/ }).waitFor();
  await page.keyboard.press("Enter");
  await page.waitForURL("**/threads/alice/palette-thread");
  await page.keyboard.press("Meta+k");
  await page.keyboard.type("doct");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/administration/doctor");
  await page.keyboard.press("Control+k");
  await page.keyboard.type("dark");
  await page.keyboard.press("Enter");
  await expect.poll(() => evaluate(opened, "document.documentElement.dataset.theme")).toBe("dark");
  await page.keyboard.press("Control+k");
  await page.keyboard.type("no such thing");
  await page.getByText("Nothing has that name.").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("combobox", { name: /Go to a page/ }).waitFor({ state: "detached" });
  expect(problems).toEqual([]);
  await browser.close();
});

test("a user's palette has no page of operators", async (context) => {
  if (missing !== null) return context.skip(missing);
  const { page, context: browser } = await stage.signedIn(alice, "/");
  await page.keyboard.press("Control+k");
  await page.getByRole("option", { name: /palette-thread/ }).waitFor();
  expect(await page.getByRole("option", { name: /Administration/ }).count()).toBe(0);
  await browser.close();
});

test("a sandbox is started and kept for an hour from its row, each after a question", async (context) => {
  if (missing !== null) return context.skip(missing);
  await stage.exec(alice, "begun", "echo kept > note.txt");
  await alice.ask(200, "POST", "/v1/threads/begun/stop");
  const { page, problems, context: browser } = await stage.signedIn(alice, "/threads");
  const row = page.getByRole("row", { name: /begun/ });
  await row.getByText("files only").waitFor();
  await row.getByRole("button", { name: "Start begun" }).click();
  await page.getByRole("alertdialog").getByText("It counts towards the limit").waitFor();
  await page.getByRole("button", { name: "Start its sandbox" }).click();
  await row.getByText("parked").waitFor();
  await row.getByRole("button", { name: "Extend begun" }).click();
  await page.getByRole("button", { name: "Keep it for an hour" }).click();
  await row.getByText("leased").waitFor();
  const explained = await alice.ask<{ holders: { purpose: string }[] }>(200, "GET", "/v1/threads/begun/explain");
  expect(explained.holders.map(({ purpose }) => purpose)).toContain("dashboard: kept");
  expect(problems).toEqual([]);
  await browser.close();
});

test("a key with an expiry is made, shown once, and listed with its end", async (context) => {
  if (missing !== null) return context.skip(missing);
  const { page, problems, context: browser } = await stage.signedIn(stage.operator, "/administration/keys");
  await page.getByLabel("User", { exact: true }).fill("dora");
  await page.getByLabel("Label").fill("for a week");
  await page.getByLabel("Works for").selectOption({ label: "7 days" });
  await page.getByRole("button", { name: "Make a key" }).click();
  const secret = (await page.locator("code.secret").textContent()) ?? "";
  expect(secret).toMatch(/^slk_/);
  await page.getByRole("button", { name: "Close" }).click();
  await page
    .getByRole("row", { name: /for a week/ })
    .getByText("in 6 d 23 h")
    .waitFor();
  expect(await page.content()).not.toContain(secret);
  const dora = stage.operator.as(secret);
  const key = await dora.ask<{ user: string; expiresAt: number }>(200, "GET", "/v1/key");
  expect(key.user).toBe("dora");
  expect(key.expiresAt).toBeGreaterThan(Date.now() + 6 * 86_400_000);
  expect(problems).toEqual([]);
  await browser.close();
});

test("every page fits a phone: nothing is wider than the screen", async (context) => {
  if (missing !== null) return context.skip(missing);
  const opened = await stage.signedIn(stage.operator, "/", { isPhone: true });
  const { page, problems, context: browser } = opened;
  const pages = ["/", "/sandboxes", "/threads", "/threads/alice/palette-thread", "/administration/keys"];
  const sections = ["configuration", "doctor", "log", "lines", "versions"].map((one) => `/administration/${one}`);
  for (const path of [...pages, ...sections]) {
    await page.goto(`${stage.url}${path}`);
    await page.getByRole("heading", { level: 1 }).waitFor();
    await page.waitForTimeout(500);
    const wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
    expect(await evaluate<number>(opened, wide), path).toBeLessThanOrEqual(0);
  }
  expect(problems).toEqual([]);
  await browser.close();
});

test("a request that the pages do not know, and an empty fleet, say what to do", async (context) => {
  if (missing !== null) return context.skip(missing);
  const erin = await stage.user("erin");
  const { page, context: browser } = await stage.signedIn(erin, "/threads");
  await page.getByText("There is no thread.").waitFor();
  await page.getByText("sandlot exec --thread t1").waitFor();
  await page.goto(`${stage.url}/threads/erin/none`);
  await page.getByText("There is no such thread").waitFor();
  await browser.close();
});
