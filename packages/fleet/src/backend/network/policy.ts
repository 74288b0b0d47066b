/**
 * The configured network policy of a sandbox, checked and compiled.
 *
 * - `none`: nothing. `allowlist`: what `allow` names. `open`: every public address.
 * - A rule reaches public addresses only. A rule with `addresses` reaches exactly those: that is the only way to a
 *   private address, and the configuration shows it. Several rules for one host add up.
 * - A secret is bound to one host, by its exact name. Only the proxy knows its value; the sandbox never has it.
 * - A registry may be read below its path, and nothing else. A rule of `allow` for the same host adds to that.
 */

import { SandlotError } from "@sandlot/contract";
import type { AddressRange } from "./addresses.ts";
import { type Host, parseHost, writtenHost } from "./host-name.ts";
import { type CompiledRegistry, compileRegistry, namedRange, type RegistryAccess } from "./registry-rules.ts";

export interface NetworkPolicy {
  readonly mode: "none" | "allowlist" | "open";
  readonly allow: readonly AllowRule[];
  readonly secrets: readonly BoundSecret[];
  readonly registries?: RegistryAccess | undefined;
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
  /** Makes the header `Basic`, with this name and the value as the password. */
  readonly username?: string | undefined;
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
  /** Texts that no response may show. */
  readonly hidden: readonly string[];
}

export interface CompiledPolicy {
  readonly mode: NetworkPolicy["mode"];
  readonly rules: readonly CompiledRule[];
  readonly secrets: readonly CompiledSecret[];
  readonly registries: readonly CompiledRegistry[];
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
  const registries = (policy.registries?.rules ?? []).map((rule) => compileRegistry(rule, "network.registries"));
  const compiled = { mode: policy.mode, rules, secrets, registries };
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

/** The registries on this host and port, whatever their paths. */
export function registriesAt(policy: CompiledPolicy, via: "https" | "http", host: Host, port: number) {
  return policy.registries.filter((one) => one.via === via && one.host.text === host.text && one.port === port);
}

function compileRule(rule: AllowRule, path: string): CompiledRule {
  const ports = new Set(rule.ports);
  if (ports.size === 0) throw invalid(`${path}.ports`, "names no port");
  const addresses = rule.addresses?.map((text, index) => namedRange(text, `${path}.addresses[${index}]`)) ?? null;
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

function compileSecret(secret: BoundSecret, path: string): CompiledSecret {
  const host = parseHost(secret.host);
  if (host?.kind !== "name") throw invalid(`${path}.host`, "must be the exact name of one host");
  const header = secret.header.toLowerCase();
  if (!HEADER_NAME.test(header) || HEADERS_NOT_FOR_SECRETS.has(header)) {
    throw invalid(`${path}.header`, `${JSON.stringify(secret.header)} cannot carry a secret`);
  }
  if (!HEADER_VALUE.test(`${secret.prefix ?? ""}${secret.value}`))
    throw invalid(`${path}.value`, "holds characters that no header may have");
  const { headerValue, hidden } = secret.username === undefined ? plainHeader(secret) : basicHeader(secret, path);
  if (secret.value.length < VALUE_MIN_LENGTH || secret.value.length > VALUE_MAX_LENGTH) {
    throw invalid(`${path}.value`, `must have ${VALUE_MIN_LENGTH} to ${VALUE_MAX_LENGTH} characters`);
  }
  const portSet = new Set(secret.ports ?? [secret.via === "https" ? 443 : 80]);
  return { ...secret, header, hostName: host.text, portSet, headerValue, hidden };
}

function plainHeader({ prefix = "", value }: BoundSecret) {
  return { headerValue: `${prefix}${value}`, hidden: [value] };
}

/** A response may show neither the password nor the form in which the header carries it. */
function basicHeader({ username = "", prefix, value }: BoundSecret, path: string) {
  if (prefix !== undefined) throw invalid(`${path}.prefix`, "cannot stand beside username, which makes it Basic");
  if (!HEADER_VALUE.test(username) || username.includes(":")) {
    throw invalid(`${path}.username`, "must not hold a colon or control characters");
  }
  const encoded = Buffer.from(`${username}:${value}`).toString("base64");
  return { headerValue: `Basic ${encoded}`, hidden: [value, encoded] };
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
