/**
 * The configured network policy of a sandbox, checked and compiled.
 *
 * - `none`: nothing. `allowlist`: what `allow` names. `open`: every public address.
 * - A rule reaches public addresses only. A rule with `addresses` reaches exactly those: that is the only way to a
 *   private address, and the configuration shows it. Several rules for one host add up.
 * - A secret is bound to one host, by its exact name. Only the proxy knows its value; the sandbox never has it.
 */

import { SandlotError } from "@sandlot/contract";
import { type AddressRange, canBeException, parseRange } from "./addresses.ts";
import { type Host, parseHost, writtenHost } from "./host-name.ts";

export interface NetworkPolicy {
  readonly mode: "none" | "allowlist" | "open";
  readonly allow: readonly AllowRule[];
  readonly secrets: readonly BoundSecret[];
}

export interface AllowRule {
  /** A host name, `*.example.org` for everything below a name (not the name itself), or an address. */
  readonly host: string;
  readonly ports: readonly number[];
  /** Addresses or ranges (`10.1.2.0/24`) that this rule reaches instead of the public ones. */
  readonly addresses?: readonly string[] | undefined;
}

export interface BoundSecret {
  /** Its name in events, errors and documents. Never the value. */
  readonly name: string;
  /** The exact name of the one host that is sent the value. */
  readonly host: string;
  /** The header that carries it. The proxy replaces this header when the sandbox sends it. */
  readonly header: string;
  readonly value: string;
  /** Put before the value, such as `Bearer `. */
  readonly prefix?: string | undefined;
  /**
   * `https`: the proxy ends the sandbox's TLS for this host with a certificate of its own, adds the header, and speaks
   * TLS with full verification to the host. `http`: the value travels in the clear, and never over TLS.
   */
  readonly via: "https" | "http";
  /** 443 for `https`, 80 for `http`, unless said otherwise. */
  readonly ports?: readonly number[] | undefined;
}

export interface CompiledRule {
  readonly text: string;
  readonly ports: ReadonlySet<number>;
  readonly addresses: readonly AddressRange[] | null;
  matches(host: Host): boolean;
}

export interface CompiledSecret extends BoundSecret {
  readonly hostName: string;
  readonly portSet: ReadonlySet<number>;
  readonly headerValue: string;
}

export interface CompiledPolicy {
  readonly mode: NetworkPolicy["mode"];
  readonly rules: readonly CompiledRule[];
  readonly secrets: readonly CompiledSecret[];
}

const HEADER_NAME = /^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$/;
const HEADER_VALUE = /^[\u0020-\u007e\u0080-\u00ff]*$/;
/** Shorter values occur by chance in responses, and would be redacted there. */
const VALUE_MIN_LENGTH = 8;
const VALUE_MAX_LENGTH = 8_192;
/** These headers decide how a message is read or where it goes, so a secret must not be in them. */
const HEADERS_NOT_FOR_SECRETS = new Set(
  "connection content-length host keep-alive proxy-authorization proxy-connection te trailer transfer-encoding upgrade".split(
    " ",
  ),
);

/** Throws `config_invalid` with the first problem. Problems name keys, never values of secrets. */
export function compilePolicy(policy: NetworkPolicy): CompiledPolicy {
  const rules = policy.allow.map((rule, index) => compileRule(rule, `network.allow[${index}]`));
  const secrets = policy.secrets.map((secret, index) => compileSecret(secret, `network.secrets[${index}]`));
  const compiled = { mode: policy.mode, rules, secrets };
  for (const [index, secret] of secrets.entries()) checkUsable(compiled, secret, `network.secrets[${index}]`);
  return compiled;
}

/** The rules that name this host and port. In `open` mode they only matter for their `addresses`. */
export function rulesFor({ rules }: CompiledPolicy, host: Host, port: number): readonly CompiledRule[] {
  return rules.filter((rule) => rule.ports.has(port) && rule.matches(host));
}

export function secretsFor(policy: CompiledPolicy, via: BoundSecret["via"], host: Host, port: number) {
  return policy.secrets.filter(
    (secret) => secret.via === via && secret.hostName === host.text && secret.portSet.has(port),
  );
}

function compileRule(rule: AllowRule, path: string): CompiledRule {
  const ports = new Set(rule.ports);
  if (ports.size === 0) throw invalid(`${path}.ports`, "names no port");
  const addresses = rule.addresses?.map((text, index) => exception(text, `${path}.addresses[${index}]`)) ?? null;
  if (addresses?.length === 0) throw invalid(`${path}.addresses`, "is empty; leave it out to reach public addresses");
  const suffix = rule.host.startsWith("*.") ? rule.host.slice(1) : null;
  const host = ruleHost(suffix === null ? rule.host : suffix.slice(1));
  if (host === null || (suffix !== null && host.kind !== "name")) {
    throw invalid(`${path}.host`, `${JSON.stringify(rule.host)} is neither a host name, *.name nor an address`);
  }
  if (suffix === null) {
    return { text: writtenHost(host), ports, addresses, matches: (asked) => asked.text === host.text };
  }
  const ending = `.${host.text}`;
  const matches = (asked: Host): boolean => asked.kind === "name" && asked.text.endsWith(ending);
  return { text: `*${ending}`, ports, addresses, matches };
}

/** In configuration an IPv6 address may also stand without brackets. */
function ruleHost(text: string): Host | null {
  return parseHost(text) ?? (text.includes(":") ? parseHost(`[${text}]`) : null);
}

function exception(text: string, path: string): AddressRange {
  const range = parseRange(text);
  if (range === null) throw invalid(path, `${JSON.stringify(text)} is neither an address nor a range like 10.1.2.0/24`);
  if (!canBeException(range))
    throw invalid(
      path,
      `${text} holds addresses that no sandbox may reach: the host's loopback, link-local, cloud metadata or multicast`,
    );
  return range;
}

function compileSecret(secret: BoundSecret, path: string): CompiledSecret {
  const host = parseHost(secret.host);
  if (host?.kind !== "name") throw invalid(`${path}.host`, "must be the exact name of one host");
  const header = secret.header.toLowerCase();
  if (!HEADER_NAME.test(header) || HEADERS_NOT_FOR_SECRETS.has(header)) {
    throw invalid(`${path}.header`, `${JSON.stringify(secret.header)} cannot carry a secret`);
  }
  const headerValue = `${secret.prefix ?? ""}${secret.value}`;
  if (!HEADER_VALUE.test(headerValue)) throw invalid(`${path}.value`, "holds characters that no header may have");
  if (secret.value.length < VALUE_MIN_LENGTH || secret.value.length > VALUE_MAX_LENGTH) {
    throw invalid(`${path}.value`, `must have ${VALUE_MIN_LENGTH} to ${VALUE_MAX_LENGTH} characters`);
  }
  const portSet = new Set(secret.ports ?? [secret.via === "https" ? 443 : 80]);
  return { ...secret, header, hostName: host.text, portSet, headerValue };
}

/**
 * Refuses a secret for a host that the policy never allows: it would never be sent, and the cause would be hard to
 * find.
 */
function checkUsable(policy: CompiledPolicy, secret: CompiledSecret, path: string): void {
  if (policy.mode === "open") return;
  const host: Host = { kind: "name", text: secret.hostName };
  for (const port of secret.portSet) {
    if (policy.mode === "none" || rulesFor(policy, host, port).length === 0) {
      throw invalid(path, `is bound to ${secret.hostName}:${port}, which the policy does not allow`);
    }
  }
}

function invalid(path: string, problem: string): SandlotError {
  return new SandlotError("config_invalid", { path, problem });
}
