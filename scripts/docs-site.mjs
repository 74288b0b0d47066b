/**
 * The documentation site: `npm run docs` builds it into dist/site, `npm run docs -- --serve` also serves it on loopback.
 *
 * 1. The packages of site/, when missing or not the ones of its lockfile. Nothing else in this repository installs them.
 * 2. The HTTP API's page, from the document that a gateway of these sources serves.
 * 3. VitePress for the documents, TypeDoc for the packages.
 * 4. A look at what came of it: every link and anchor leads somewhere, and nothing comes from another origin.
 */
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { checkSite } from "../site/check-site.mjs";
import { serveSite } from "../site/serve-site.mjs";
import { npm, ROOT, repositoryNode, run, withHeartbeat } from "./runtime.mjs";

const SITE = join(ROOT, "site");
const OUT = join(ROOT, "dist", "site");
const STAMP = join(SITE, "node_modules", ".lockfile-of-install");
const LOCKFILE = join(SITE, "package-lock.json");

process.exitCode = await main();

async function main() {
  const steps = [installPackages, writeHttpApi, buildPages, buildApi];
  for (const step of steps) {
    const code = await step();
    if (code !== 0) return code;
  }
  const { pages, links, problems } = checkSite(OUT);
  for (const problem of problems) console.error(problem);
  if (problems.length > 0) return 1;
  console.log(`documentation site: ${pages} pages, ${links} links, all of them lead somewhere; dist/site`);
  if (process.argv.includes("--serve")) await serveSite(OUT);
  return 0;
}

async function installPackages() {
  const lockfile = readFileSync(LOCKFILE, "utf8");
  if (existsSync(STAMP) && readFileSync(STAMP, "utf8") === lockfile) return 0;
  console.log("installing the packages of the documentation site …");
  const tell = (seconds) => console.log(`still installing (${seconds} s)`);
  // Errors only: the machine's own npm may run on a Node that is older than some of these packages ask for.
  const args = ["ci", "--ignore-scripts", "--include=dev", "--include=optional", "--loglevel=error"];
  const code = await withHeartbeat(10_000, tell, () => npm(args, { cwd: SITE }));
  if (code === 0) writeFileSync(STAMP, lockfile);
  else
    console.error(`npm ci in site/ failed (${code}). It needs the package registry; try again when that is reachable.`);
  return code;
}

function writeHttpApi() {
  return node("--conditions=sandlot-source", join(SITE, "http-api.ts"));
}

async function buildPages() {
  const library = join(SITE, "node_modules", "mermaid", "dist", "mermaid.min.js");
  mkdirSync(join(SITE, "generated", "public"), { recursive: true });
  copyFileSync(library, join(SITE, "generated", "public", "mermaid.min.js"));
  return node(join(SITE, "node_modules", "vitepress", "bin", "vitepress.js"), "build");
}

function buildApi() {
  return node(join(SITE, "node_modules", "typedoc", "bin", "typedoc"), "--options", "typedoc.json");
}

function node(...args) {
  return run(repositoryNode(), args, { cwd: SITE });
}
