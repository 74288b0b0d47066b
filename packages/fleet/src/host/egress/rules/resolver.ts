/** Resolves names, on the host and never in the sandbox. */

import { lookup } from "node:dns/promises";

/** Every address of a name, in the order to try them. Rejects when there is none. */
export type Resolver = (name: string, signal: AbortSignal) => Promise<readonly string[]>;

/** The host's own resolver, including `/etc/hosts`. */
export const systemResolver: Resolver = async (name) => {
  const found = await lookup(name, { all: true, order: "verbatim" });
  return found.map(({ address }) => address);
};
