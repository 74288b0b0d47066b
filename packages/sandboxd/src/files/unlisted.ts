/** Directories of the workspace that lists, searches and watches skip, unless a call names them. */

import { unlistedBelow, WORKSPACE_ROOT } from "@sandlot/contract";

let workspaceRoot: string = WORKSPACE_ROOT;

/** Where there are no mounts, the workspace has its path on the host. */
export function useWorkspaceRoot(path: string): void {
  workspaceRoot = path;
}

/** Relative to `root`. */
export function unlisted(root: string, pattern?: string): readonly string[] {
  return unlistedBelow(root, pattern, workspaceRoot);
}
