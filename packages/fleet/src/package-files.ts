/** Locates the files of this package, both from source and from the bundle, which puts many files into one. */

import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, sep } from "node:path";
import { fileURLToPath } from "node:url";

/** Whether this runs from source, not the bundle. Child programs then need the export condition for source. */
export const FROM_SOURCE: boolean = import.meta.url.endsWith(".ts");

const ROOT = packageRoot();

/** Where npm installed this package. Optional peers must be installed in the same place. */
export type Installation =
  | { readonly kind: "checkout" | "project"; readonly directory: string }
  | { readonly kind: "global" };

export function installation(root: string = ROOT): Installation {
  // The source is not published.
  if (existsSync(join(root, "src"))) return { kind: "checkout", directory: join(root, "..", "..") };
  const [project = ""] = root.split(`${sep}node_modules${sep}`, 1);
  return existsSync(join(project, "package.json")) ? { kind: "project", directory: project } : { kind: "global" };
}

/** A program that runs as its own process, by its path below `src`, without an extension. */
export function programFile(path: string): string {
  return FROM_SOURCE ? join(ROOT, "src", `${path}.ts`) : join(ROOT, "dist", "bundle", "programs", `${path}.js`);
}

/** A file of the page at `/docs`. */
export function docsFile(name: string): string {
  return FROM_SOURCE
    ? createRequire(import.meta.url).resolve(`@fastify/swagger-ui/static/${name}`)
    : join(ROOT, "dist", "bundle", "docs", name);
}

/** The built files of the dashboard. From source they are the neighbour's, which `npm run build` makes. */
export function dashboardFolder(): string {
  return FROM_SOURCE ? join(ROOT, "..", "dashboard", "dist") : join(ROOT, "dist", "bundle", "dashboard");
}

/** The package's own version, shown to people and MCP clients. */
export function packageVersion(): string {
  return packageManifest().version;
}

/** This file is published with the package, so its shape is known. */
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
