/**
 * The protocol version between two processes, and its check. `docs/versioning.md` says which change needs which number.
 *
 * A daemon sends its version in its ready line and in the greeting of every hold; a gateway in a response header.
 */

import { SandlotError } from "./errors.ts";

/** `major.minor`. A new minor adds; readers of this version cannot read a new major. */
export const PROTOCOL_VERSION = "1.0";

const [OUR_MAJOR] = PROTOCOL_VERSION.split(".");
const PATTERN = /^(\d{1,4})\.\d{1,4}$/;

/**
 * Throws `protocol_incompatible` if the peer announces another major version. A peer without a version is an older one,
 * and an invalid version says nothing: both are accepted.
 */
export function checkProtocol(peer: "daemon" | "gateway", announced: string | null | undefined): void {
  const [, major] = PATTERN.exec(announced ?? "") ?? [];
  if (major === undefined || Number(major) === Number(OUR_MAJOR)) return;
  throw new SandlotError("protocol_incompatible", { peer, theirs: announced ?? "", ours: PROTOCOL_VERSION });
}
