/**
 * The version of what two processes say to each other, and how a reader judges it. `docs/versioning.md` says what may change
 * under which number.
 *
 * A daemon says its version in its ready line and in the greeting of every hold; a gateway in a header of every response.
 */

import { SandlotError } from "./errors.ts";

/** `major.minor`. A new minor adds; a new major is one that readers of this version cannot read. */
export const PROTOCOL_VERSION = "1.0";

const [OUR_MAJOR] = PROTOCOL_VERSION.split(".");
const PATTERN = /^(\d{1,4})\.\d{1,4}$/;

/**
 * Throws `protocol_incompatible` where the peer announces another major version. A peer that announces none is an older one,
 * and what is no version says nothing: both are read as they come.
 */
export function checkProtocol(peer: "daemon" | "gateway", announced: string | null | undefined): void {
  const [, major] = PATTERN.exec(announced ?? "") ?? [];
  if (major === undefined || Number(major) === Number(OUR_MAJOR)) return;
  throw new SandlotError("protocol_incompatible", { peer, theirs: announced ?? "", ours: PROTOCOL_VERSION });
}
