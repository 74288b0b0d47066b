/**
 * Every page of the dashboard: axe-core finds nothing on it, light and dark; and nothing that comes from a sandbox runs
 * as a script in it. `SANDLOT_SCREENSHOTS=<folder>` keeps a picture of each.
 */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Caller } from "../../gateway/support/stage.ts";
import { axeFindings, DashboardStage, evaluate, missing, type OpenedPage, screenOf, shot } from "./dashboard-stage.ts";

const WORKSPACE = "/mnt/user-data/workspace";
/** Counts how often it ran. */
const HIT = "globalThis.hits=(globalThis.hits??0)+1";
/** Text that becomes a script where a page takes it for a part of itself. */
const MARKUP = [
  `<img src=x onerror="${HIT}">`,
  `"><svg onload="${HIT}">`,
  `'><iframe srcdoc="<script>parent.${HIT.replace("globalThis.hits??", "parent.hits??")}</script>">`,
  `<details open ontoggle="${HIT}">`,
];
/** As names: without a slash, and at most 255 bytes. */
const NAMES = MARKUP.map((text) => text.replaceAll("/", "")).concat([
  `javascript:${HIT}`,
  "\u202egnp.exe",
  "line\nbreak\u001b]0;owned\u0007",
]);

let stage: DashboardStage;
let alice: Caller;

beforeAll(async () => {
  if (missing !== null) return;
  stage = await DashboardStage.open();
  alice = await stage.user("alice");
  await stage.exec(
    alice,
    "research-42",
    "mkdir -p notes; printf '# Plan\\n\\n1. Read\\n2. Try\\n' > plan.md; seq 1 40 > numbers.txt",
  );
  await stage.exec(alice, "build-fix", "true");
  await stage.exec(await stage.user("bob"), "report", "true");
});
afterAll(async () => {
  if (missing === null)
    await stage.done([
      [alice, "research-42"],
      [alice, "build-fix"],
      [alice, "hostile"],
      [stage.operator.with({ "x-sandlot-user": "bob" }), "report"],
    ]);
});

const thread = "/threads/alice/research-42";
const PAGES: readonly (readonly [name: string, path: string, ready: (opened: OpenedPage) => Promise<unknown>])[] = [
  ["overview", "/", ({ page }) => page.getByText("They agree").waitFor()],
  ["sandboxes", "/sandboxes", ({ page }) => page.getByRole("link", { name: "research-42" }).waitFor()],
  ["threads", "/threads", ({ page }) => page.getByRole("link", { name: "report" }).waitFor()],
  ["thread", thread, ({ page }) => page.getByText("was made in").waitFor()],
  [
    "terminal",
    `${thread}?tab=terminal`,
    async ({ page }) => {
      const open = page.getByRole("button", { name: "New terminal" });
      await open.waitFor();
      if ((await page.locator(".xterm").count()) === 0) await open.click();
      await expect.poll(() => screenOf(page)).toContain("$");
      await page.keyboard.type("ls; wc -l numbers.txt\n");
      await expect.poll(() => screenOf(page)).toContain("40 numbers.txt");
    },
  ],
  [
    "files",
    `${thread}?tab=files&path=${WORKSPACE}`,
    async ({ page }) => {
      await page.getByRole("button", { name: "plan.md", exact: true }).click();
      await page.getByRole("heading", { name: "Plan", exact: true }).waitFor();
    },
  ],
  [
    "previews",
    `${thread}?tab=previews`,
    ({ page }) =>
      page
        .getByText("Nothing listens on a port")
        .or(page.getByRole("button", { name: "Show" }))
        .first()
        .waitFor(),
  ],
  [
    "palette",
    "/",
    async ({ page }) => {
      await page.getByText("They agree").waitFor();
      await page.keyboard.press("Control+k");
      await page.getByRole("option", { name: /research-42/ }).waitFor();
    },
  ],
  [
    "question",
    "/threads",
    async ({ page }) => {
      await page.getByRole("button", { name: "Delete build-fix" }).click();
      await page.getByText("This cannot be undone").waitFor();
    },
  ],
  ["keys", "/administration/keys", ({ page }) => page.getByText("this session").waitFor()],
  [
    "configuration",
    "/administration/configuration",
    ({ page }) => page.getByText("limits.max", { exact: true }).waitFor(),
  ],
  ["doctor", "/administration/doctor", ({ page }) => page.getByRole("button", { name: "Look again" }).waitFor()],
  ["log", "/administration/log", ({ page }) => page.getByText("/v1/threads/:thread/exec").first().waitFor()],
  ["lines", "/administration/lines", ({ page }) => page.getByText("The last lines of this gateway").waitFor()],
  ["versions", "/administration/versions", ({ page }) => page.getByText("protocol").waitFor()],
];

describe.each(["light", "dark"] as const)("axe-core finds nothing, %s:", (theme) => {
  test("signing in", async (context) => {
    if (missing !== null) return context.skip(missing);
    const opened = await stage.open("/", { theme });
    await opened.page.getByRole("button", { name: "Sign in" }).waitFor();
    expect(await axeFindings(opened)).toEqual([]);
    await shot(opened.page, `sign-in-${theme}`);
    await opened.context.close();
  });

  test("every page", async (context) => {
    if (missing !== null) return context.skip(missing);
    const opened = await stage.signedIn(stage.operator, "/", { theme });
    const found: Record<string, string[]> = {};
    for (const [name, path, ready] of PAGES) {
      await opened.page.goto(`${stage.url}${path}`);
      await ready(opened);
      await shot(opened.page, `${name}-${theme}`);
      const findings = await axeFindings(opened);
      if (findings.length > 0) found[name] = findings;
    }
    expect(found).toEqual({});
    expect(opened.problems).toEqual([]);
    await opened.context.close();
  });
});

test("axe-core would find something: a button without a name", async (context) => {
  if (missing !== null) return context.skip(missing);
  const opened = await stage.open("/");
  await opened.page.getByRole("button", { name: "Sign in" }).waitFor();
  await evaluate(opened, 'document.querySelector("main").append(document.createElement("button")); null');
  expect((await axeFindings(opened)).join()).toContain("button-name");
  await opened.context.close();
});

describe("what comes from a sandbox runs no script:", () => {
  const hits = (opened: Pick<OpenedPage, "page" | "context">) => evaluate<number>(opened, "globalThis.hits ?? 0");

  test("the corpus would run in a page that takes it for markup", async (context) => {
    if (missing !== null) return context.skip(missing);
    for (const text of MARKUP) {
      const opened = await stage.open("/healthz");
      await opened.page.setContent(`<body>${text}</body>`);
      await expect.poll(() => hits(opened), { message: text }).toBeGreaterThan(0);
      await opened.context.close();
    }
  });

  test("names, contents and images of files", async (context) => {
    if (missing !== null) return context.skip(missing);
    const files = NAMES.map((name) => `printf x > ${quoted(name)}`);
    const html = `<!doctype html><script>${HIT}</script>${MARKUP.join("")}`;
    const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10" onload="${HIT}"><script>${HIT}</script></svg>`;
    await stage.exec(
      alice,
      "hostile",
      [...files, `printf %s ${quoted(html)} > a.html`, `printf %s ${quoted(svg)} > a.svg`].join("\n"),
    );
    const opened = await stage.signedIn(alice, `/threads/alice/hostile?tab=files&path=${WORKSPACE}`);
    const { page, problems } = opened;
    await page.getByRole("button", { name: "a.html", exact: true }).waitFor();
    expect(await page.locator("tbody tr").count()).toBe(NAMES.length + 2);
    const first = NAMES[0] ?? "";
    await page.getByRole("button", { name: first, exact: true }).click();
    await page.getByLabel(`Content of ${first}`).waitFor();
    // What would turn the text around or break the line is shown as what it is.
    await page.getByText("\\u202egnp.exe").waitFor();
    await page.getByText("line\\u000abreak").waitFor();
    await page.getByRole("button", { name: "a.html", exact: true }).click();
    await page.locator("pre").getByText("<!doctype html>").waitFor();
    await page.getByRole("button", { name: "a.svg", exact: true }).click();
    await page.locator(".viewer img").waitFor();
    await page.waitForTimeout(1_000);
    expect(await hits(opened)).toBe(0);
    // As a page of its own, the image has the policy of the page that made it.
    const address = (await page.locator(".viewer img").getAttribute("src")) ?? "";
    const [tab] = await Promise.all([
      opened.context.waitForEvent("page"),
      evaluate(opened, `window.open(${JSON.stringify(address)}); null`),
    ]);
    await tab.waitForLoadState();
    await page.waitForTimeout(1_000);
    expect(await hits({ page: tab, context: opened.context })).toBe(0);
    expect(problems).toEqual([]);
    await opened.context.close();
  });

  test("output of a terminal: markup, titles, links, the clipboard", async (context) => {
    if (missing !== null) return context.skip(missing);
    const escapes = [
      ...MARKUP,
      "\u001b]0;owned title\u0007",
      `\u001b]8;;javascript:${HIT}\u001b\\a link\u001b]8;;\u001b\\`,
      `\u001b]52;c;${Buffer.from("stolen").toString("base64")}\u0007`,
      `\u001bP$q"p\u001b\\\u001b[8;500;500t\u001b[21t`,
    ];
    await stage.exec(alice, "hostile", `printf %s ${quoted(escapes.join("\n"))} > output; echo >> output`);
    const opened = await stage.signedIn(alice, "/threads/alice/hostile?tab=terminal");
    const { page, problems } = opened;
    await expect.poll(() => screenOf(page)).toContain("$");
    await page.keyboard.type("cat output; echo the-end\n");
    await expect.poll(() => screenOf(page)).toMatch(/\nthe-end/);
    // The screen is above its text.
    await page.getByText("a link").first().click({ force: true });
    await page.waitForTimeout(500);
    expect(await hits(opened)).toBe(0);
    expect(await page.title()).toBe("Sandlot");
    expect(opened.context.pages()).toHaveLength(1);
    expect(problems).toEqual([]);
    await opened.context.close();
  });

  test("purposes and paths in events, and texts of errors", async (context) => {
    if (missing !== null) return context.skip(missing);
    const opened = await stage.signedIn(stage.operator, "/");
    const { page, problems } = opened;
    await page.getByText("Nothing since this page was opened.").waitFor();
    const [purpose = ""] = MARKUP;
    const json = { purpose, ttlMs: 5_000 };
    await alice.ask(201, "POST", "/v1/threads/hostile/leases", { json });
    await page.getByText(purpose, { exact: false }).first().waitFor();
    await page.goto(`${stage.url}/threads/alice/${encodeURIComponent(purpose)}`);
    await page.getByRole("alert").waitFor();
    await page.goto(`${stage.url}/threads/alice/hostile?tab=files&path=${encodeURIComponent(`/${purpose}`)}`);
    await page.getByRole("alert").waitFor();
    expect(await hits(opened)).toBe(0);
    expect(problems).toEqual([]);
    await opened.context.close();
  });
});

/** As one word of a shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
