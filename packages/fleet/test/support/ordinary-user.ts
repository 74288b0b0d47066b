/**
 * Programs of this checkout as an account that owns nothing. The checkout may lie where such an account may not look,
 * such as root's home, so the program sees it at a place that is open to all accounts, in its own mount namespace.
 */

import { chmodSync, mkdtempSync, rmdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";

export const ORDINARY = { uid: 59_998, gid: 59_998 } as const;

const CHECKOUT = fileURLToPath(new URL("../../../../", import.meta.url));
const MOUNT = 'mount --rbind "$0" "$1" && cd "$1" && shift && exec "$@"';

let place: string | null = null;

/** The path of this checkout as an ordinary user sees it. Other paths are the same for all accounts. */
export function seenByOrdinaryUser(path: string): string {
  const below = relative(CHECKOUT, path);
  return below.startsWith("..") ? path : join(openPlace(), below);
}

/**
 * The command of root that runs a command as an ordinary user, in the checkout. Its paths are those of
 * `seenByOrdinaryUser`.
 */
export function asOrdinaryUser(...command: readonly string[]): readonly [string, ...string[]] {
  const drop = ["setpriv", `--reuid=${ORDINARY.uid}`, `--regid=${ORDINARY.gid}`, "--clear-groups", "--"];
  return ["unshare", "--mount", "--", "/bin/sh", "-c", MOUNT, CHECKOUT, openPlace(), ...drop, ...command];
}

/** The Node that runs this. */
export function ordinaryNode(): string {
  return seenByOrdinaryUser(process.execPath);
}

/** An empty directory outside: only the program sees the mount there. */
function openPlace(): string {
  if (place !== null) return place;
  const made = mkdtempSync(join(tmpdir(), "sl-checkout-"));
  chmodSync(made, 0o755);
  process.once("exit", () => rmdirSync(made));
  place = made;
  return made;
}
