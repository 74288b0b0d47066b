/** Paths that a caller names: relative to the workspace, or as they are inside a sandbox. */

import { SandlotError, WORKSPACE_ROOT } from "@sandlot/contract";
import { bytesOf } from "../take/path-list.ts";
import { PathFilter } from "./compare.ts";

/** `except`: these and all below them are not meant, whatever is named. */
export function filterOf(paths: readonly string[] | null | undefined, except: readonly string[] = []): PathFilter {
  const apart = except.map(bytesOf);
  if (paths === null || paths === undefined) return new PathFilter(null, apart);
  const normal = paths.map((path) => {
    const refuse = (problem: string) => new SandlotError("invalid_path", { path, problem });
    const below =
      path === WORKSPACE_ROOT
        ? ""
        : path.startsWith(`${WORKSPACE_ROOT}/`)
          ? path.slice(WORKSPACE_ROOT.length + 1)
          : path;
    if (below.startsWith("/")) throw refuse("it must be relative to the workspace");
    if (below.includes("\0")) throw refuse("it contains a NUL byte");
    const names = below.split("/").filter((name) => name !== "" && name !== ".");
    if (names.includes("..")) throw refuse("it must not contain ..");
    return bytesOf(names.join("/"));
  });
  return new PathFilter(normal.includes("") ? null : normal, apart);
}
