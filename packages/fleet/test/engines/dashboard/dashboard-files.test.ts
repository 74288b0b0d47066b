/** The file viewer, transfers and previews of the dashboard, in a real browser, on real sandboxes. */

import { execFileSync } from "node:child_process";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Caller } from "../../gateway/support/stage.ts";
import { DashboardStage, evaluate, missing, shot } from "./dashboard-stage.ts";

const WORKSPACE = "/mnt/user-data/workspace";
const PDF = [
  "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R/OpenAction<</S/JavaScript/JS(app.alert(1))>>>>endobj",
  "2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj",
  "3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]>>endobj",
  "trailer<</Root 1 0 R>>",
].join("\n");
const MARKDOWN = [
  ...["# Report", "", "It is **done**, see [the page](https://e.example/) or [this](javascript:alert(1)).", ""],
  ...[
    '<img src=x onerror="globalThis.hits=1">',
    "",
    "![a](https://e.example/p.png)",
    "",
    "```js",
    "const a = 1;",
    "```",
  ],
].join("\n");

let stage: DashboardStage;
let alice: Caller;

beforeAll(async () => {
  if (missing !== null) return;
  stage = await DashboardStage.open();
  alice = await stage.user("alice");
});
afterAll(async () => {
  if (missing === null)
    await stage.done([
      [alice, "files"],
      [alice, "served"],
    ]);
});

const put = (path: string, content: string) =>
  alice.ask(200, "PUT", `/v1/threads/files/files/content?path=${encodeURIComponent(`${WORKSPACE}/${path}`)}`, {
    body: new TextEncoder().encode(content),
  });
const filesPage = `/threads/alice/files?tab=files&path=${WORKSPACE}`;

test("text with colours, tables, Markdown and PDF are shown, and nothing in them runs or is loaded", async (context) => {
  if (missing !== null) return context.skip(missing);
  await put("code.py", "def f():\n    return 42  # answer\n");
  await put("rows.csv", 'name,note\n"a, b",<script>globalThis.hits=1</script>\n');
  await put("report.md", MARKDOWN);
  await put("paper.pdf", PDF);
  const { page, problems, context: browser } = await stage.signedIn(alice, filesPage);
  const open = (name: string) => page.getByRole("button", { name, exact: true }).click();
  await open("code.py");
  await page.locator(".viewer .hl-keyword").getByText("def").waitFor();
  expect(await page.locator(".viewer pre").textContent()).toContain("return 42  # answer");
  await open("rows.csv");
  await page.getByRole("cell", { name: "a, b" }).waitFor();
  await page.getByRole("cell", { name: "<script>globalThis.hits=1</script>" }).waitFor();
  await page.getByRole("button", { name: "As text" }).click();
  await page.locator(".viewer pre").getByText("name,note").waitFor();
  await open("report.md");
  await page.getByRole("heading", { name: "Report", exact: true }).waitFor();
  const links = page.locator(".markdown a");
  expect(await links.evaluateAll((all) => all.map((one) => one.getAttribute("href")))).toEqual([
    ...["https://e.example/", "https://e.example/p.png"],
  ]);
  await shot(page, "markdown-light");
  expect(await links.first().getAttribute("rel")).toBe("noopener noreferrer");
  expect(await page.locator(".markdown img").count()).toBe(0);
  await page.locator(".markdown").getByText("<img src=x onerror=").waitFor();
  await open("paper.pdf");
  const frame = page.locator("iframe.pdf");
  await frame.or(page.getByText("This browser shows no PDF")).waitFor();
  if ((await frame.count()) > 0) expect(await frame.getAttribute("src")).toMatch(/^blob:/);
  expect(await evaluate({ page, context: browser }, "globalThis.hits ?? 0")).toBe(0);
  expect(problems).toEqual([]);
  await browser.close();
});

test("a change over another change asks, and loses neither by itself", async (context) => {
  if (missing !== null) return context.skip(missing);
  await put("shared.txt", "first\n");
  const { page, problems, context: browser } = await stage.signedIn(alice, filesPage);
  const content = async () =>
    (
      await alice.ask<{ stdout: string }>(200, "POST", "/v1/threads/files/exec", {
        json: { command: "cat shared.txt" },
      })
    ).stdout;
  await page.getByRole("button", { name: "shared.txt", exact: true }).click();
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByRole("textbox", { name: /Content of/ }).fill("mine\n");
  await put("shared.txt", "theirs\n");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByText("It was changed inside since you opened it").waitFor();
  expect(await content()).toBe("theirs\n");
  await page.getByRole("button", { name: "Save over it" }).click();
  await page.locator(".viewer pre").getByText("mine").waitFor();
  expect(await content()).toBe("mine\n");
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByRole("textbox", { name: /Content of/ }).fill("again\n");
  await put("shared.txt", "theirs again\n");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByRole("button", { name: "Drop my changes" }).click();
  await page.locator(".viewer pre").getByText("theirs again").waitFor();
  expect(problems).toEqual([]);
  await browser.close();
});

test("an upload tells its progress and can be cancelled; a folder comes back as an archive", async (context) => {
  if (missing !== null) return context.skip(missing);
  const { page, problems, context: browser } = await stage.signedIn(alice, filesPage);
  await page.getByText("report.md").or(page.getByText("This folder is empty")).first().waitFor();
  // The gateway gets a large upload slowly enough to be seen.
  const session = await browser.newCDPSession(page);
  const slow = { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: 2_000_000 };
  await session.send("Network.emulateNetworkConditions", slow);
  const large = { name: "large.bin", mimeType: "application/octet-stream", buffer: Buffer.alloc(12_000_000, 7) };
  await page.locator("input[type=file]").setInputFiles([large]);
  await page.getByText(/Uploading large.bin \(1 of 1, .* of 11.4 MiB\)/).waitFor();
  await page.locator("progress").waitFor();
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByText("It was cancelled").waitFor();
  await session.send("Network.emulateNetworkConditions", { ...slow, uploadThroughput: -1 });
  await page.locator("input[type=file]").setInputFiles([
    { name: "one.txt", mimeType: "text/plain", buffer: Buffer.from("1") },
    { name: "two.txt", mimeType: "text/plain", buffer: Buffer.from("2") },
  ]);
  await page.getByText("2 files were uploaded.").waitFor();
  expect(await page.getByRole("button", { name: "large.bin", exact: true }).count()).toBe(0);
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Download the folder" }).click(),
  ]);
  expect(download.suggestedFilename()).toBe("workspace.tar");
  const listed = execFileSync("tar", ["-tf", await download.path()], { encoding: "utf8" }).split("\n");
  expect(listed).toEqual(expect.arrayContaining(["workspace/one.txt", "workspace/two.txt"]));
  expect(problems).toEqual([]);
  await browser.close();
});

test("a page served inside is shown in a frame that reaches nothing of the dashboard", async (context) => {
  if (missing !== null) return context.skip(missing);
  const html = [
    "<!doctype html><title>inner</title><h1>Served inside</h1><p id=told></p><script>",
    "let told = document.cookie + ' ' + location.search;",
    "try { told += parent.document.title } catch { told += ' refused' }",
    "try { top.location = '/gone' } catch { told += ' stays' }",
    "document.getElementById('told').textContent = told; fetch('/again').then((r) => {",
    "document.title = 'status ' + r.status })</script>",
  ].join("\n");
  await alice.ask(200, "PUT", `/v1/threads/served/files/content?path=${WORKSPACE}/index.html`, {
    body: new TextEncoder().encode(html),
  });
  const json = { command: "exec python3 -m http.server 8123 --bind 127.0.0.1", background: true };
  await alice.ask(202, "POST", "/v1/threads/served/exec", { json });
  const opened = await stage.signedIn(alice, "/threads/alice/served?tab=previews", { hasPreviews: true });
  const { page, context: browser } = opened;
  await page.getByRole("button", { name: "8123", exact: true }).click();
  const frame = page.frameLocator("iframe.preview");
  await frame.getByRole("heading", { name: "Served inside" }).waitFor();
  const told = (await frame.locator("#told").textContent()) ?? "";
  expect(told).toContain("refused");
  // The link is neither in the address nor in a cookie that a script reads.
  expect(told).not.toMatch(/sandlot/);
  await shot(page, "preview-light");
  // What the page asks for later comes with the frame's cookie.
  const inner = page.frames().find((one) => one.url().includes(".localhost"));
  await expect.poll(() => inner?.title()).toBe("status 404");
  expect(new URL(page.url()).pathname).toBe("/threads/alice/served");
  const kept = (await browser.cookies()).find(({ name }) => name === "sandlot-frame");
  expect([kept?.httpOnly, kept?.secure, kept?.sameSite]).toEqual([true, true, "None"]);
  expect((kept as { partitionKey?: string } | undefined)?.partitionKey).toBeTruthy();
  // Another page, also of this host, may not frame it.
  const address = await page.locator("iframe.preview").getAttribute("src");
  const other = await stage.open("/healthz", { hasPreviews: true });
  await other.page.goto(`${stage.url.replace("127.0.0.1", "localhost")}/healthz`);
  await other.page.setContent(`<iframe src="${address}"></iframe>`);
  await other.page.waitForTimeout(2_000);
  expect(await other.page.frameLocator("iframe").getByRole("heading", { name: "Served inside" }).count()).toBe(0);
  await other.context.close();
  await browser.close();
});
