/** The site: every page is built from the file that people read in the repository, without a resource of another origin. */
import { dirname, join, posix, relative } from "node:path";
import { defineConfig } from "vitepress";
import { addressOf, EXCLUDED, PAGES, ROOT, sidebar } from "../pages.mjs";

/** Pages lie outside this folder and would look for Vue beside themselves; it is installed here. */
const resolveFromSite = {
  name: "resolve-from-site",
  enforce: "pre",
  resolveId(id, importer, { ssr }) {
    if (!/^vue(\/|$)/.test(id)) return null;
    if (ssr) return { id, external: true };
    if (!importer?.includes(".md")) return null;
    return this.resolve(id, join(ROOT, "site", "index.md"), { skipSelf: true });
  },
};

export default defineConfig({
  title: "Sandlot",
  description: "A sandbox of its own for every conversation of an AI agent",
  lang: "en",
  srcDir: ROOT,
  srcExclude: EXCLUDED,
  rewrites: PAGES,
  outDir: "../dist/site",
  cacheDir: "../.cache/site",
  appearance: true,
  lastUpdated: false,
  ignoreDeadLinks: [/^\/api\//],
  themeConfig: {
    nav: [
      { text: "Start", link: "/start.html" },
      { text: "Errors", link: "/errors.html" },
      { text: "API", link: "/api/index.html", target: "_self" },
    ],
    sidebar: sidebar(),
    outline: [2, 3],
    search: { provider: "local" },
    docFooter: { prev: false, next: false },
  },
  markdown: { anchor: { slugify }, config: withRepositoryLinks },
  vite: {
    publicDir: `${ROOT}/site/generated/public`,
    build: { chunkSizeWarningLimit: 3000 },
    plugins: [resolveFromSite],
  },
});

/**
 * Documents link to files of the repository. A link to a page leads to that page; a link to anything else, such as a source file,
 * becomes its text with the path as a hint. Diagrams are drawn by a component.
 */
function withRepositoryLinks(md) {
  md.core.ruler.push("repository-links", ({ tokens, env }) => {
    const from = relative(ROOT, env.realPath ?? env.path).replaceAll("\\", "/");
    for (const { children } of tokens) relink(children ?? [], from);
  });
  const fence = md.renderer.rules.fence;
  md.renderer.rules.fence = (tokens, index, ...rest) =>
    tokens[index].info.trim() === "mermaid"
      ? `<MermaidDiagram code="${encodeURIComponent(tokens[index].content)}" />`
      : fence(tokens, index, ...rest);
}

function relink(tokens, from) {
  const open = [];
  for (const token of tokens) {
    if (token.type === "link_open") {
      open.push(retarget(token, from));
    } else if (token.type === "link_close" && open.pop() === "span") token.tag = "span";
  }
}

/** Returns the tag that the link has become. */
function retarget(token, from) {
  const href = token.attrGet("href");
  if (/^([a-z]+:|#|\/)/.test(href)) return "a";
  const [path, anchor] = href.split("#");
  const file = posix.join(dirname(from), decodeURIComponent(path)).replace(/\/$/, "");
  const address = addressOf(file) ?? addressOf(`${file}/README.md`);
  if (address !== undefined) {
    token.attrSet("href", anchor === undefined ? address : `${address}#${anchor}`);
    return "a";
  }
  token.type = "span_open";
  token.tag = "span";
  token.attrs = [
    ["class", "in-repository"],
    ["title", `${file} in the repository`],
  ];
  return "span";
}

/** As GitHub names the anchors of headings, so that a link works in the repository and here. */
function slugify(heading) {
  return heading
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, "")
    .replace(/\s/g, "-");
}
