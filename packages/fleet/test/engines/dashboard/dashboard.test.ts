/** The dashboard as people use it, in a real browser, on real sandboxes. */

import { readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Caller } from "../../gateway/support/stage.ts";
import { killSandbox } from "./dashboard-kill.ts";
import { DashboardStage, evaluate, missing, screenOf } from "./dashboard-stage.ts";

let stage: DashboardStage;
let alice: Caller & { readonly id: string };
let bob: Caller & { readonly id: string };

beforeAll(async () => {
  if (missing !== null) return;
  stage = await DashboardStage.open();
  alice = await stage.user("alice");
  bob = await stage.user("bob");
  await stage.exec(alice, "alpha", "seq 1 100 > numbers.txt");
  await stage.exec(bob, "beta", "true");
});
afterAll(async () => {
  if (missing === null)
    await stage.done([
      [alice, "alpha"],
      [alice, "lost"],
      [bob, "beta"],
    ]);
});

test("signing in with a key, and its refusals", async (context) => {
  if (missing !== null) return context.skip(missing);
  const { page, problems, context: browser } = await stage.open("/threads");
  const key = page.getByLabel("Key", { exact: true });
  for (const wrong of ["nonsense", `slk_${"0".repeat(12)}_${"0".repeat(48)}`]) {
    await key.fill(wrong);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("alert").getByText("the key is not valid").waitFor();
  }
  await key.fill(alice.key);
  await page.getByRole("button", { name: "Sign in" }).click();
  // At the address that was asked for.
  await page.getByRole("link", { name: "alpha" }).waitFor();
  const [cookie] = await browser.cookies();
  expect([cookie?.httpOnly, cookie?.sameSite]).toEqual([true, "Strict"]);
  const kept = "document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)";
  expect(await evaluate({ page, context: browser }, kept)).not.toMatch(/slk_|sandlot-session/);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByText("Your session has ended").waitFor();
  await page.reload();
  await page.getByRole("button", { name: "Sign in" }).waitFor();
  expect(problems).toEqual([]);
  await browser.close();
});

test("a one-time link signs in once, and its token does not stay in the address", async (context) => {
  if (missing !== null) return context.skip(missing);
  const { path } = await stage.operator.ask<{ path: string }>(201, "POST", "/v1/dashboard/links");
  const first = await stage.open(path);
  await first.page.getByRole("link", { name: "Administration" }).waitFor();
  expect(first.page.url()).toBe(`${stage.url}/`);
  const second = await stage.open(path);
  await second.page.getByRole("alert").getByText("used already").waitFor();
  expect([...first.problems, ...second.problems]).toEqual([]);
  // One that is opened in a session is used only when that is confirmed.
  const { path: other } = await alice.ask<{ path: string }>(201, "POST", "/v1/dashboard/links");
  await first.page.goto(`${stage.url}${other}`);
  await first.page.reload();
  await first.page.getByRole("button", { name: "Stay signed in" }).click();
  await first.page.getByRole("link", { name: "Administration" }).waitFor();
  const third = await stage.open(other);
  await third.page.getByText("alice").first().waitFor();
  await third.context.close();
  await first.context.close();
  await second.context.close();
});

test("a user sees nothing of another's, and no page for operators", async (context) => {
  if (missing !== null) return context.skip(missing);
  const { page, problems, context: browser } = await stage.signedIn(alice, "/threads");
  await page.getByRole("link", { name: "alpha" }).waitFor();
  expect(await page.getByText("beta").count()).toBe(0);
  expect(await page.getByRole("link", { name: "Administration" }).count()).toBe(0);
  for (const path of ["/sandboxes", "/"]) {
    await page.goto(`${stage.url}${path}`);
    await page.getByRole("heading", { level: 1 }).waitFor();
    await stage.exec(bob, "beta", "true");
    await page.waitForTimeout(1_500);
    expect(await page.getByText("beta").count(), path).toBe(0);
  }
  await page.goto(`${stage.url}/administration/keys`);
  await page.getByText("There is no such page.").waitFor();
  await page.goto(`${stage.url}/threads/bob/beta`);
  await page.getByRole("alert").getByText("acts for its own user only").waitFor();
  expect(problems).toEqual([]);
  await browser.close();
});

test("what happens is shown while the page is open, and filters stay in the address", async (context) => {
  if (missing !== null) return context.skip(missing);
  const { page, problems, context: browser } = await stage.signedIn(stage.operator, "/threads");
  await page.getByRole("link", { name: "alpha" }).waitFor();
  await page.getByLabel("Filter by thread or user").fill("ali");
  await page.getByText("beta").waitFor({ state: "detached" });
  expect(new URL(page.url()).search).toContain("q=ali");
  await page.reload();
  await page.getByRole("link", { name: "alpha" }).waitFor();
  expect(await page.getByText("beta").count()).toBe(0);
  await page.goto(`${stage.url}/`);
  await page.getByText("Nothing since this page was opened.").waitFor();
  await stage.exec(alice, "alpha", "true");
  await page
    .getByText(/alpha was leased for/)
    .first()
    .waitFor();
  await page.goto(`${stage.url}/administration/configuration`);
  await page.getByLabel("Filter by key").fill("gateway.port");
  await page.getByRole("cell", { name: "--port" }).waitFor();
  expect(problems).toEqual([]);
  await browser.close();
});

test("a command in the terminal, which another page watches", async (context) => {
  if (missing !== null) return context.skip(missing);
  const { page, problems, context: browser } = await stage.signedIn(alice, "/threads/alice/alpha?tab=terminal");
  await expect.poll(() => screenOf(page)).toContain("$");
  await page.keyboard.type("tail -n 1 numbers.txt; echo typed-$((6*7))\n");
  await expect.poll(() => screenOf(page)).toMatch(/100\s+typed-42/);
  const watching = await stage.signedIn(stage.operator, "/threads/alice/alpha?tab=terminal");
  await watching.page.getByRole("button", { name: "Watch" }).first().click();
  await expect.poll(() => screenOf(watching.page)).toContain("typed-42");
  await watching.page.locator(".xterm").click();
  await watching.page.keyboard.type("echo not-sent\n");
  await page.keyboard.type("echo after\n");
  await expect.poll(() => screenOf(watching.page)).toMatch(/echo after\s+after/);
  expect(await screenOf(page)).not.toContain("not-sent");
  expect([...problems, ...watching.problems]).toEqual([]);
  await watching.context.close();
  await browser.close();
});

test("upload, look, change, download and remove a file", async (context) => {
  if (missing !== null) return context.skip(missing);
  const path = "/mnt/user-data/workspace";
  const {
    page,
    problems,
    context: browser,
  } = await stage.signedIn(alice, `/threads/alice/alpha?tab=files&path=${path}`);
  await page.getByRole("button", { name: "numbers.txt", exact: true }).waitFor();
  const content = Buffer.from("first line\nsecond line\n");
  await page
    .locator("input[type=file]")
    .setInputFiles([{ name: "up loaded ü.txt", mimeType: "text/plain", buffer: content }]);
  await page.getByText("1 file was uploaded.").waitFor();
  await page.getByRole("button", { name: "up loaded ü.txt", exact: true }).click();
  await page.getByText("second line").waitFor();
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByRole("textbox", { name: /Content of/ }).fill("changed\n");
  await page.getByRole("button", { name: "Save" }).click();
  await page.locator("pre").getByText("changed").waitFor();
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Download up loaded ü.txt" }).click(),
  ]);
  expect(download.suggestedFilename()).toBe("up loaded ü.txt");
  expect(readFileSync(await download.path(), "utf8")).toBe("changed\n");
  await page.getByRole("button", { name: "Remove up loaded ü.txt" }).click();
  await page.getByRole("alertdialog").getByRole("button", { name: "Remove" }).click();
  await page.getByRole("button", { name: "up loaded ü.txt", exact: true }).waitFor({ state: "detached" });
  const shown = await alice.ask<{ stdout: string }>(200, "POST", "/v1/threads/alpha/exec", { json: { command: "ls" } });
  expect(shown.stdout).toBe("numbers.txt\n");
  expect(problems).toEqual([]);
  await browser.close();
});

test("a killed sandbox is told, with why, and what stays", async (context) => {
  if (missing !== null) return context.skip(missing);
  await stage.exec(alice, "lost", "echo kept > note.txt");
  const {
    page,
    problems,
    context: browser,
  } = await stage.signedIn(alice, "/threads/alice/lost?tab=files&path=/mnt/user-data/workspace");
  await page.getByRole("button", { name: "note.txt", exact: true }).waitFor();
  await killSandbox(alice, "lost");
  await page
    .getByText(/The sandbox was lost/)
    .first()
    .waitFor();
  await page
    .getByRole("button", { name: "Open again" })
    .or(page.getByRole("button", { name: "Start a sandbox" }))
    .first()
    .click();
  await page.getByRole("button", { name: "note.txt", exact: true }).waitFor();
  expect(problems).toEqual([]);
  await browser.close();
});

test("stopping asks first, says what is lost, and names a lease that stands in the way", async (context) => {
  if (missing !== null) return context.skip(missing);
  const { page, problems, context: browser } = await stage.signedIn(alice, "/threads/alice/alpha?tab=terminal");
  await page.getByRole("button", { name: "Take over" }).first().click();
  await expect.poll(() => screenOf(page)).toContain("typed-42");
  await page.getByRole("button", { name: "Stop the sandbox" }).click();
  const dialog = page.getByRole("alertdialog");
  await dialog.getByText("The workspace and the home stay").waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Stop the sandbox" }).click();
  await dialog.getByLabel(/Also while it is in use/).check();
  await dialog.getByRole("button", { name: "Stop the sandbox" }).click();
  await dialog.waitFor({ state: "detached" });
  const { sandbox } = await alice.ask<{ sandbox: unknown }>(200, "GET", "/v1/threads/alpha");
  expect(sandbox).toBeNull();
  expect(problems).toEqual([]);
  await browser.close();
});

test("a key that is revoked while its page is open signs the page out", async (context) => {
  if (missing !== null) return context.skip(missing);
  const carol = await stage.user("carol");
  const { page, context: browser } = await stage.signedIn(carol);
  const operator = await stage.signedIn(stage.operator, "/administration/keys");
  await operator.page.getByRole("button", { name: `Revoke ${carol.id}` }).click();
  await operator.page.getByRole("alertdialog").getByRole("button", { name: "Revoke" }).click();
  await page.getByText("Your session has ended, or its key was revoked").waitFor();
  expect(await page.getByText("carol").count()).toBe(0);
  expect(operator.problems).toEqual([]);
  await operator.context.close();
  await browser.close();
});

test("a gateway that is killed and started again is told, and the page goes on in its session", async (context) => {
  if (missing !== null) return context.skip(missing);
  const { page, context: browser } = await stage.signedIn(stage.operator, "/threads");
  await page.getByRole("link", { name: "beta" }).waitFor();
  await stage.restart(() => page.getByText("The gateway does not answer. Trying again").waitFor());
  await page.getByText("The gateway answers again.").waitFor();
  await alice.ask(200, "POST", "/v1/threads/alpha/exec", { json: { command: "true" } });
  await page.getByRole("link", { name: "alpha" }).waitFor();
  await page
    .getByRole("row", { name: /alpha/ })
    .getByText(/parked|leased/)
    .waitFor();
  await browser.close();
});
