/**
 * Builds installable tarballs of the packages, which are on no public registry yet:
 *
 *   npm run pack [-- --to <folder>]      default: `packed/` of the checkout
 *
 * Prints the command that installs them. It has to name all of them: npm would search the others on a registry.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { childEnvironment, ROOT } from "./runtime.mjs";

export const PACKAGES = ["contract", "sandboxd", "client", "fleet"].map((name) => join(ROOT, "packages", name));

/**
 * Expects the packages to be built. Returns one entry per package, with the names of the files in it.
 * @param {string} folder
 * @returns {{ tarball: string, names: string[] }[]}
 */
export function pack(folder) {
  mkdirSync(folder, { recursive: true });
  for (const name of readdirSync(folder)) if (/^sandlot-.*\.tgz$/.test(name)) rmSync(join(folder, name));
  const output = execFileSync(
    "npm",
    ["pack", "--json", "--ignore-scripts", "--pack-destination", folder, ...PACKAGES],
    {
      cwd: ROOT,
      env: childEnvironment({ npm_config_loglevel: "error" }),
      encoding: "utf8",
      shell: process.platform === "win32",
    },
  );
  return JSON.parse(output).map(({ filename, files }) => ({
    tarball: join(folder, filename),
    names: files.map(({ path }) => path),
  }));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [option, folder] = process.argv.slice(2);
  if (option !== undefined && (option !== "--to" || folder === undefined)) {
    console.error("usage: npm run pack [-- --to <folder>]");
    process.exit(2);
  }
  const target = resolve(process.env.INIT_CWD ?? ROOT, folder ?? join(ROOT, "packed"));
  for (const { tarball } of pack(target)) console.log(tarball);
  console.log(`\nIn your project:\n\n  npm install ${quoted(target)}/sandlot-*.tgz\n`);
}

function quoted(path) {
  return /^[\w./@%+:,=-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
}
