/**
 * Puts the command line of this checkout on the PATH, as a link called `sandlot`:
 *
 *   npm run link [-- <folder>]       default: /usr/local/bin for root, ~/.local/bin for others
 *   npm run unlink [-- <folder>]     removes it again
 *
 * It follows the checkout: after `git pull`, the same command again builds what changed. A file that is not such a link
 * is never replaced.
 */
import { lstatSync, mkdirSync, readlinkSync, rmSync, symlinkSync } from "node:fs";
import { homedir } from "node:os";
import { delimiter, join, resolve } from "node:path";
import { ROOT } from "./runtime.mjs";

const LAUNCHER = join(ROOT, "packages", "fleet", "bin", "sandlot.mjs");

const args = process.argv.slice(2);
const remove = args[0] === "--remove";
const [named] = remove ? args.slice(1) : args;
const folder = named === undefined ? usualFolder() : resolve(process.env.INIT_CWD ?? process.cwd(), named);
const link = join(folder, "sandlot");

const found = linkTarget(link);
if (found === "other") {
  console.error(`${link} exists and is not a link to a checkout of Sandlot; it is left alone.`);
  process.exitCode = 1;
} else if (remove) {
  rmSync(link, { force: true });
  console.log(found === null ? `There is no ${link}.` : `${link} is removed.`);
} else {
  mkdirSync(folder, { recursive: true });
  rmSync(link, { force: true });
  symlinkSync(LAUNCHER, link);
  console.log(`${link} is the command line of this checkout.`);
  const onPath = (process.env.PATH ?? "").split(delimiter).includes(folder);
  if (!onPath) console.log(`${folder} is not in your PATH; add it: export PATH="${folder}:$PATH"`);
}

function usualFolder() {
  return process.getuid?.() === 0 ? "/usr/local/bin" : join(homedir(), ".local", "bin");
}

/** `null`: missing. `other`: a file that this script did not create. */
function linkTarget(path) {
  try {
    if (!lstatSync(path).isSymbolicLink()) return "other";
  } catch (error) {
    if (error.code === "ENOENT") return null;
    throw error;
  }
  const target = readlinkSync(path);
  return target.endsWith("packages/fleet/bin/sandlot.mjs") ? target : "other";
}
