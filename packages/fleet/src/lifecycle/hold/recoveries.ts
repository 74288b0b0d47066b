/** The `recovery` values that are the same for every sandbox. */

import type { Recovery } from "@sandlot/contract";

/** The lease joined a sandbox that was alive. */
export const SAME: Recovery = {
  kind: "same",
  lost: [],
  survived: ["processes", "temporary files", "installed packages", "workspace"],
};

/** The lease had a sandbox, and the next generation begins without files. */
export const NOTHING_LEFT: Recovery = {
  kind: "empty",
  lost: ["processes", "temporary files", "installed packages", "workspace"],
  survived: [],
};
