/**
 * Decides what may be reached, in two pure functions: by name before anything is resolved, by address after.
 *
 * Only an address that the second function allows is connected to. There is no second look-up, so a DNS response that
 * changes meanwhile (DNS rebinding) has no effect.
 */

import { canonicalAddress, isNeverReached, rangeContains, whyNotPublic } from "../../../backend/network/addresses.ts";
import { type Authority, writtenAuthority } from "../../../backend/network/host-name.ts";
import type { CompiledPolicy, CompiledRule } from "../../../backend/network/policy.ts";
import { rulesFor } from "../../../backend/network/policy.ts";

export type RefusalRule =
  /** No rule names this host and port. */
  | "not-allowed"
  /** A rule does, but the addresses are in a range that is never reachable. */
  | "address-not-public"
  /** A rule names addresses, and the host has none of them. */
  | "address-not-named"
  /** The address is one of the machine that Sandlot runs on. */
  | "address-of-this-host"
  /** A registry takes `GET` and `HEAD` without a body. */
  | "registry-read-only"
  /** The path is not below a path of the registry. */
  | "registry-path";

export interface Refusal {
  readonly host: string;
  readonly port: number;
  readonly rule: RefusalRule;
  /** The resolved addresses, when the refusal came after resolving. */
  readonly addresses: readonly string[];
  /** Which rule or range, as text. */
  readonly because: string;
}

/** The rules that allow the name; an empty list in `open` mode. Otherwise the refusal. */
export function decideByName(policy: CompiledPolicy, target: Authority): readonly CompiledRule[] | Refusal {
  const rules = rulesFor(policy, target.host, target.port);
  if (rules.length > 0 || policy.mode === "open") return rules;
  const because = `no rule of network.allow names ${writtenAuthority(target)}`;
  return { host: target.host.text, port: target.port, rule: "not-allowed", addresses: [], because };
}

/**
 * The addresses that may be connected to, never empty, or the refusal. `ownAddresses` are those of this machine's
 * interfaces: public or not, services there are not meant for sandboxes.
 */
export function decideByAddress(
  target: Authority,
  rules: readonly CompiledRule[],
  found: readonly string[],
  ownAddresses: ReadonlySet<string>,
): readonly string[] | Refusal {
  const pinned = rules.flatMap((rule) => rule.addresses ?? []);
  const reachesPublic = rules.length === 0 || rules.some((rule) => rule.addresses === null);
  const addresses = found.map((address) => canonicalAddress(address) ?? address);
  const refuse = (rule: RefusalRule, because: string): Refusal => {
    return { host: target.host.text, port: target.port, rule, addresses, because };
  };
  let refusal = refuse("address-not-public", "the host has no address");
  const allowed = addresses.filter((address) => {
    if (!isNeverReached(address) && pinned.some((range) => rangeContains(range, address))) return true;
    const problem = whyNotPublic(address);
    if (!reachesPublic) refusal = refuse("address-not-named", `${address} is not among the addresses of the rule`);
    else if (problem !== null)
      refusal = refuse("address-not-public", `${address} lies in ${problem.range} (${problem.meaning})`);
    else if (ownAddresses.has(address))
      refusal = refuse("address-of-this-host", `${address} belongs to the machine that Sandlot runs on`);
    else return true;
    return false;
  });
  return allowed.length > 0 ? allowed : refusal;
}

export function isRefusal(decision: readonly unknown[] | Refusal): decision is Refusal {
  return !Array.isArray(decision);
}

/** Whether a decision about one thing is a refusal of it. */
export function isRefused<Found extends object>(decision: Found | Refusal): decision is Refusal {
  return "because" in decision;
}
