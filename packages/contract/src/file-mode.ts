/** Modes that a caller may give a file: permissions and the sticky bit. Never setuid or setgid, on any backend. */

import { SandlotError } from "./errors.ts";

/** The bits that a written file may have. */
export const FILE_MODE_BITS = 0o1777;

/** Refuses an invalid mode, and setuid and setgid, before anything is written. */
export function checkFileMode(mode: number | undefined): void {
  if (mode === undefined) return;
  if (!Number.isInteger(mode) || mode < 0 || mode > 0o7777)
    throw new SandlotError("invalid_request", { field: "mode", problem: "it is not a file mode such as 0o644" });
  if ((mode & ~FILE_MODE_BITS) !== 0)
    throw new SandlotError("invalid_request", {
      field: "mode",
      problem: "it has setuid or setgid; leave those bits out",
    });
}
