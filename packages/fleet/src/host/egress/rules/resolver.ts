/**
 * From a name to addresses, on the host and never in the sandbox.
 */

import { lookup } from "node:dns/promises";

/** Every address of a name, in the order in which they should be tried. Rejects when there is none. */
export type Resolver = (name: string, signal: AbortSignal) => Promise<readonly string[]>;

/** What the host itself would use, its `/etc/hosts` included. */
export const systemResolver: Resolver = async (name) => {
  const found = await lookup(name, { all: true, order: "verbatim" });
  return found.map(({ address }) => address);
};
