/** Paths that a caller names: relative to the workspace, or as they are inside a sandbox. */

import { SandlotError, WORKSPACE_ROOT } from "@sandlot/contract";
import { bytesOf } from "../take/path-list.ts";
import { ALL, PathFilter } from "./compare.ts";

export function filterOf(paths: readonly string[] | null | undefined): PathFilter {
  if (paths === null || paths === undefined) return ALL;
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
  return normal.includes("") ? ALL : new PathFilter(normal);
}
