/**
 * Where the files of this package are: the same answer from source, and from the bundle, where code of many files is in one.
 */

import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, sep } from "node:path";
import { fileURLToPath } from "node:url";

/** Whether this runs from source, and not from the bundle. Programs then need the condition that leads to the others' source. */
export const FROM_SOURCE: boolean = import.meta.url.endsWith(".ts");

const ROOT = packageRoot();

/** Where npm has put this package. What it is to find beside it has to be installed there. */
export type Installation =
  | { readonly kind: "checkout" | "project"; readonly directory: string }
  | { readonly kind: "global" };

export function installation(root: string = ROOT): Installation {
  // The source is not published.
  if (existsSync(join(root, "src"))) return { kind: "checkout", directory: join(root, "..", "..") };
  const [project = ""] = root.split(`${sep}node_modules${sep}`, 1);
  return existsSync(join(project, "package.json")) ? { kind: "project", directory: project } : { kind: "global" };
}

/** A program that is started as a process of its own, by its path below `src`, without an ending. */
export function programFile(path: string): string {
  return FROM_SOURCE ? join(ROOT, "src", `${path}.ts`) : join(ROOT, "dist", "bundle", "programs", `${path}.js`);
}

/** A file of the page at `/docs`. */
export function docsFile(name: string): string {
  return FROM_SOURCE
    ? createRequire(import.meta.url).resolve(`@fastify/swagger-ui/static/${name}`)
    : join(ROOT, "dist", "bundle", "docs", name);
}

/** The package's own version, as people and MCP clients are told it. */
export function packageVersion(): string {
  return packageManifest().version;
}

/** Our own file, published with this one: its shape is known. */
export function packageManifest(): {
  readonly version: string;
  readonly peerDependencies: Readonly<Record<string, string>>;
} {
  return JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
}

function packageRoot(): string {
  let url = new URL(".", import.meta.url);
  while (!existsSync(new URL("package.json", url))) {
    const above = new URL("..", url);
    if (above.href === url.href) throw new Error(`no package.json above ${import.meta.url}`);
    url = above;
  }
  return fileURLToPath(url);
}
