/** What `npm run docs` refuses in a built site: links and anchors that lead nowhere, and resources of other origins. */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { checkSite } from "../../site/check-site.mjs";

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "sandlot-site-"));
  // As many pages as a site has at least.
  for (let number = 0; number < 20; number++) page(`page-${number}.html`, `<h2 id="top">${number}</h2>`);
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function page(path: string, html: string): void {
  const file = join(folder, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, html);
}

test("links to pages, headings and files are followed, with and without an ending", () => {
  page(
    "guides/one.html",
    `<a href="../page-1.html#top">a</a> <a href="/page-2">b</a> <a class="x" href="#own">c</a><i id="own"></i>`,
  );
  page("guides/index.html", `<a href="/openapi.json">d</a> <a href="https://example.org/">e</a>`);
  page("openapi.json", "{}");
  page("page-3.html", `<a href="/guides/">f</a>`);
  expect(checkSite(folder)).toEqual({ pages: 22, links: 5, problems: [] });
});

test("a page or a heading that is not there is named with the page that links to it", () => {
  page("page-0.html", `<a href="/missing.html">a</a> <a href="/page-1.html#no-such">b</a> <a href="#nowhere">c</a>`);
  expect(checkSite(folder).problems).toEqual([
    "page-0.html: /missing.html: no such page",
    "page-0.html: /page-1.html#no-such: no such heading",
    "page-0.html: #nowhere: no such heading",
  ]);
});

test("scripts, styles and images of other origins are refused", () => {
  page(
    "page-0.html",
    `<script src="https://cdn.example.org/x.js"></script><link rel="preload" href="//fonts.example.org/f">`,
  );
  expect(checkSite(folder).problems).toHaveLength(2);
});

test("a site that lacks most of its pages is refused", () => {
  for (let number = 1; number < 20; number++) rmSync(join(folder, `page-${number}.html`));
  expect(checkSite(folder).problems).toEqual([`${folder}: only 1 pages`]);
});
