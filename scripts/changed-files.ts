/** The changes of this checkout, as git has them, and its files for `changed.ts`. */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Sources } from "./changed.ts";
import { repositoryFiles } from "./repository-files.ts";
import { ROOT } from "./runtime.mjs";

export type Changes = { readonly since: string; readonly files: readonly string[] } | { readonly problem: string };

/** What a branch leaves from, in the order of preference. */
const TRUNKS = ["origin/main", "main", "origin/master", "master"];

/** Changed since `ref`, committed or not; without a ref since the branch left the trunk. Files that git does not know yet count. */
export function changesSince(ref: string | undefined, root: string = ROOT): Changes {
  const git = (...args: string[]) => {
    try {
      return execFileSync("git", args, { cwd: root, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
    } catch {
      return null;
    }
  };
  const commit = (name: string) => git("rev-parse", "--verify", "--quiet", `${name}^{commit}`);
  const trunk = ref ?? TRUNKS.find((name) => commit(name) !== null);
  if (trunk === undefined) return { problem: "git knows no main or master that the changes could begin at" };
  if (commit(trunk) === null) return { problem: `git knows no commit ${trunk}` };
  const since = git("merge-base", "HEAD", trunk);
  if (since === null) return { problem: `${trunk} and this branch have nothing in common` };
  // Without renames: a file that was moved is gone where it was.
  const changed = git("diff", "--name-only", "--no-renames", "-z", since);
  const unknown = git("ls-files", "--others", "--exclude-standard", "-z");
  if (changed === null || unknown === null) return { problem: "git could not list what changed" };
  const files = [changed, unknown].flatMap((list) => list.split("\0")).filter((path) => path !== "");
  return { since: since.slice(0, 12), files: [...new Set(files)].sort() };
}

/** Each file is read once. */
export function checkoutSources(): Sources {
  const texts = new Map<string, string>();
  return {
    paths: repositoryFiles(),
    read(path) {
      const text = texts.get(path) ?? readFileSync(join(ROOT, path), "utf8");
      texts.set(path, text);
      return text;
    },
  };
}
