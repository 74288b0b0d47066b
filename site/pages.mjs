/**
 * Which files of the repository are pages of the site, at which address, and in which group of the menu. A page is built from where
 * it lies; nothing is copied. A document that stands in no group fails the build, so that no page is left out by accident.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

export const ROOT = join(import.meta.dirname, "..");

/** Titles of the menu where the page's own heading is too long for it. */
const SHORT = {
  "README.md": "Start here",
  "docs/guides/http.md": "HTTP",
  "docs/guides/mcp.md": "MCP",
  "docs/guides/tools.md": "Tools",
  "docs/guides/network.md": "Network",
  "docs/guides/home.md": "Home directory",
  "docs/guides/packages.md": "Packages and environments",
  "docs/guides/data-science.md": "From nothing to a plot",
  "docs/guides/gateway.md": "Gateway",
  "docs/guides/several-gateways.md": "Several gateways",
  "docs/LIFECYCLE.md": "Lifecycle",
  "docs/CONCURRENCY.md": "Concurrency",
  "docs/SPECIFICATION.md": "Specification",
  "AGENTS.md": "Contributing",
};

/** Pages that do not lie in docs/. */
const ELSEWHERE = {
  "site/index.md": "index.md",
  "site/generated/http-api.md": "http-api.md",
  "README.md": "start.md",
  "AGENTS.md": "contributing.md",
  "CHANGELOG.md": "changelog.md",
  "deploy/README.md": "deploy.md",
  "images/README.md": "images.md",
  "examples/README.md": "examples.md",
};

const DOCS = readdirSync(join(ROOT, "docs"), { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".md"))
  .map((name) => `docs/${name.replaceAll("\\", "/")}`)
  .sort();

/** From a file of the repository to the address of its page. */
export const PAGES = {
  ...Object.fromEntries(Object.entries(ELSEWHERE).filter(([file]) => existsSync(join(ROOT, file)))),
  ...Object.fromEntries(DOCS.map((file) => [file, file.slice("docs/".length)])),
};

const FOLDERS = new Set(Object.keys(PAGES).map((file) => file.split("/")[0]));

/** What VitePress must not take for pages: other folders, and other Markdown files at the root. */
export const EXCLUDED = readdirSync(ROOT, { withFileTypes: true })
  .filter(({ name }) => !FOLDERS.has(name) && PAGES[name] === undefined)
  .flatMap((entry) => (entry.isDirectory() ? [`${entry.name}/**`] : entry.name.endsWith(".md") ? [entry.name] : []));

const below = (folder) => DOCS.filter((file) => file.startsWith(`docs/${folder}/`));

const GROUPS = {
  Use: [
    "README.md",
    ...below("guides"),
    "examples/README.md",
    "docs/operations.md",
    "docs/FAILURES.md",
    "deploy/README.md",
    "images/README.md",
  ],
  Reference: [
    "docs/configuration.md",
    "docs/errors.md",
    "site/generated/http-api.md",
    "docs/home-layout.md",
    "docs/wire-protocol.md",
    "docs/versioning.md",
    "docs/GLOSSARY.md",
    "CHANGELOG.md",
  ],
  Understand: [
    "docs/ARCHITECTURE.md",
    "docs/LIFECYCLE.md",
    "docs/CONCURRENCY.md",
    "docs/THREAT_MODEL.md",
    ...below("backends"),
    ...below("stores"),
    "docs/SPECIFICATION.md",
    "docs/specification-tests.md",
  ],
  Change: ["AGENTS.md", "docs/extending.md"],
  Decisions: below("decisions"),
};

export function sidebar() {
  const listed = Object.values(GROUPS).flat();
  const forgotten = Object.keys(PAGES).filter((file) => file !== "site/index.md" && !listed.includes(file));
  // A page of a group may be missing while it is being written; a page without a group is a mistake.
  if (forgotten.length > 0) throw new Error(`in no group of site/pages.mjs: ${forgotten.join(", ")}`);
  const groups = Object.entries(GROUPS).map(([text, files]) => ({
    text,
    collapsed: text === "Decisions",
    items: files
      .filter((file) => PAGES[file] !== undefined)
      .map((file) => ({ text: title(file), link: addressOf(file) })),
  }));
  groups[1].items.push({ text: "API of the packages", link: "/api/index.html", target: "_self" });
  return groups;
}

/** Where a file's page is, or undefined where it is no page. */
export function addressOf(file) {
  const page = PAGES[file];
  return page === undefined ? undefined : `/${page.replace(/\.md$/, ".html")}`.replace(/^\/index\.html$/, "/");
}

function title(file) {
  if (SHORT[file] !== undefined) return SHORT[file];
  const [, heading = file] = /^# (.*)$/m.exec(readFileSync(join(ROOT, file), "utf8")) ?? [];
  return heading.replaceAll("`", "").replace(/:.*$/, "");
}
