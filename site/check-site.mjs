/**
 * What a built site must not have: a link or an anchor that leads nowhere, or anything that a browser would fetch from another
 * origin. Reads the HTML that people get, so it also sees what VitePress and TypeDoc have made of the documents.
 */
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, posix } from "node:path";

/** Attributes that make a browser fetch something at once, as opposed to a link that a reader follows. */
const FETCHED = /<(?:script|img|iframe|link|source)\b[^>]*?\s(?:src|href)="(https?:)?\/\/[^"]*"/g;
const LINK = /<a\b[^>]*?\shref="([^"]*)"/g;
const ANCHOR = /\s(?:id|name)="([^"]+)"/g;

export function checkSite(folder) {
  const pages = new Map(htmlFiles(folder).map((file) => [file, readFileSync(join(folder, file), "utf8")]));
  const anchors = new Map();
  const anchorsOf = (file) => {
    if (!anchors.has(file))
      anchors.set(file, new Set([...pages.get(file).matchAll(ANCHOR)].map(([, id]) => decoded(id))));
    return anchors.get(file);
  };
  const problems = [];
  let links = 0;
  for (const [file, html] of pages) {
    for (const [fetched] of html.matchAll(FETCHED)) problems.push(`${file}: fetches from another origin: ${fetched}`);
    for (const [, href] of html.matchAll(LINK)) {
      if (/^(https?:|mailto:)/.test(href)) continue;
      links += 1;
      const problem = problemOf(decoded(href), file);
      if (problem !== null) problems.push(`${file}: ${href}: ${problem}`);
    }
  }
  if (pages.size < 20) problems.push(`${folder}: only ${pages.size} pages`);
  return { pages: pages.size, links, problems };

  function problemOf(href, from) {
    const [path = "", anchor] = href.split("#");
    const below = path.startsWith("/") ? path.slice(1) : posix.join(dirname(from), path);
    const target = path === "" ? from : asFile(below.split("?")[0]);
    if (target === undefined) return "no such page";
    if (anchor === undefined || anchor === "" || !target.endsWith(".html")) return null;
    return anchorsOf(target).has(anchor) ? null : "no such heading";
  }

  function asFile(path) {
    const candidates = [path, `${path}.html`, posix.join(path, "index.html")];
    return candidates
      .map(posix.normalize)
      .find((one) => existsSync(join(folder, one)) && statSync(join(folder, one)).isFile());
  }
}

function htmlFiles(folder) {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .map((name) => name.replaceAll("\\", "/"))
    .filter((name) => name.endsWith(".html"));
}

function decoded(text) {
  return decodeURIComponent(text.replaceAll("&amp;", "&").replaceAll("&#39;", "'").replaceAll("&quot;", '"'));
}
