/** Parses the path of an artifact from its URL. Pure. */

import { SandlotError, WORKSPACE_ROOT } from "@sandlot/contract";
import { DeerFlowDetail } from "../errors.ts";

export const OUTPUTS = `${WORKSPACE_ROOT}/outputs`;

/** A URL has a path of the sandbox (`mnt/user-data/…`); ours may also have one below the outputs. */
export function artifactPath(given: string, deerflow: boolean): string {
  const path = given.replace(/^\/+/, "");
  const segments = path.split("/");
  if (segments.includes("..") || segments.includes("."))
    throw refused(
      "forbidden",
      { problem: "the path leads out of the workspace" },
      "Access denied: path traversal detected",
    );
  if (path === "" || /\p{Cc}/u.test(path) || segments.slice(0, -1).includes(""))
    throw refused("invalid_request", { field: "path", problem: "it is no path of a file" }, "Invalid path");
  const absolute = `/${path}`;
  if (absolute.startsWith(`${WORKSPACE_ROOT}/`)) return absolute;
  if (deerflow) {
    const problem = `it must begin with ${WORKSPACE_ROOT.slice(1)}`;
    throw refused("invalid_request", { field: "path", problem }, `Path must start with ${WORKSPACE_ROOT}`);
  }
  return `${OUTPUTS}/${path}`;
}

/** The directories between the workspace and a path, from the top. */
export function directoriesOf(path: string): readonly string[] {
  const segments = path
    .slice(WORKSPACE_ROOT.length + 1)
    .split("/")
    .slice(0, -1);
  return segments.map((_, index) => [WORKSPACE_ROOT, ...segments.slice(0, index + 1)].join("/"));
}

function refused(code: "forbidden" | "invalid_request", details: never | object, words: string): SandlotError {
  return new SandlotError(code, details as never, { cause: new DeerFlowDetail(words) });
}
