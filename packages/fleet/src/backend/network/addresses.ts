/**
 * Which internet addresses are public.
 *
 * Every destination of a sandbox is checked here as an address, after names, spellings and redirects are resolved. Only
 * addresses known to be public pass, so for IPv6 only the allocated part (2000::/3) can. An address that carries an
 * IPv4 address inside (mapped, NAT64) is judged by what it carries; tunnels that end on the host (6to4, Teredo) are
 * refused whole.
 */

import { isIPv4, isIPv6 } from "node:net";

/** A block of addresses, as bytes. IPv4 has 4, IPv6 has 16. */
export interface AddressRange {
  readonly text: string;
  readonly bytes: Uint8Array;
  readonly prefixBits: number;
}

/** Why an address is not public: the block it lies in, and what that block is for. */
export interface NotPublic {
  readonly range: string;
  readonly meaning: string;
}

const IPV4_NOT_PUBLIC = table([
  ["0.0.0.0/8", "this network"],
  ["10.0.0.0/8", "private"],
  ["100.64.0.0/10", "shared by carriers, and cloud metadata"],
  ["127.0.0.0/8", "loopback"],
  ["168.63.129.16/32", "cloud metadata"],
  ["169.254.0.0/16", "link-local, and cloud metadata"],
  ["172.16.0.0/12", "private"],
  ["192.0.0.0/24", "protocol assignments, and cloud metadata"],
  ["192.0.2.0/24", "documentation"],
  ["192.88.99.0/24", "6to4 relays"],
  ["192.168.0.0/16", "private"],
  ["198.18.0.0/15", "benchmarks"],
  ["198.51.100.0/24", "documentation"],
  ["203.0.113.0/24", "documentation"],
  ["224.0.0.0/4", "multicast"],
  ["240.0.0.0/4", "reserved, and broadcast"],
]);

export const IPV4_RANGES_NOT_PUBLIC: readonly string[] = IPV4_NOT_PUBLIC.map(({ range: text }) => text);

const IPV6_NOT_PUBLIC = table([
  ["::/128", "unspecified"],
  ["::1/128", "loopback"],
  ["64:ff9b:1::/48", "local-use NAT64"],
  ["2001::/23", "protocol assignments, and Teredo"],
  ["2001:db8::/32", "documentation"],
  ["2002::/16", "6to4"],
  ["3fff::/20", "documentation"],
  ["fc00::/7", "private, and cloud metadata"],
  ["fe80::/10", "link-local"],
  ["fec0::/10", "site-local"],
  ["ff00::/8", "multicast"],
]);

const IPV6_HANDED_OUT = range("2000::/3");
const IPV4_MAPPED = range("::ffff:0:0/96");
const NAT64 = range("64:ff9b::/96");

/** Addresses without a single receiver, and the host itself: no exception may name any of these. */
const NEVER = [
  ...["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32"],
  ...["::/128", "::1/128", "fe80::/10", "ff00::/8"],
].map(range);
/** Single addresses inside ranges that an exception may name. Naming such a range does not open them. */
const METADATA = ["100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254"].map(range);

/** `null` for a public address. A text that is not an address is not public either. */
export function whyNotPublic(address: string): NotPublic | null {
  const bytes = parseAddress(address);
  if (bytes === null) return { range: address, meaning: "not an address" };
  if (bytes.length === 4) return lookUp(IPV4_NOT_PUBLIC, bytes);
  const inner = carriedIPv4(bytes);
  if (inner !== null) return lookUp(IPV4_NOT_PUBLIC, inner);
  const known = lookUp(IPV6_NOT_PUBLIC, bytes);
  if (known !== null) return known;
  return contains(IPV6_HANDED_OUT, bytes) ? null : { range: "outside 2000::/3", meaning: "reserved" };
}

/** Whether an exception may name this range at all. An IPv6 range is also judged by the IPv4 range that it carries. */
export function canBeException(candidate: AddressRange): boolean {
  const carried = carriedRange(candidate);
  if (carried !== null) return canBeException(carried);
  return (
    !NEVER.some((never) => overlaps(never, candidate)) &&
    !METADATA.some((only) => candidate.prefixBits >= only.prefixBits && contains(only, candidate.bytes))
  );
}

/** The host's loopback, link-local addresses and cloud metadata: not even an exception opens these. */
export function isNeverReached(address: string): boolean {
  const bytes = parseAddress(address);
  if (bytes === null) return true;
  const judged = bytes.length === 16 ? (carriedIPv4(bytes) ?? bytes) : bytes;
  return [...NEVER, ...METADATA].some((never) => contains(never, judged));
}

/** The IPv4 range that a range within `::ffff:0:0/96` or NAT64's prefix carries; `null` for any other. */
function carriedRange({ text, bytes, prefixBits }: AddressRange): AddressRange | null {
  const inner = bytes.length === 16 && prefixBits >= 96 ? carriedIPv4(bytes) : null;
  return inner === null ? null : { text, bytes: inner, prefixBits: prefixBits - 96 };
}

/** Two spellings of one address compare equal; an IPv4 address equals its mapped form. */
export function rangeContains(candidate: AddressRange, address: string): boolean {
  const bytes = parseAddress(address);
  if (bytes === null) return false;
  return contains(candidate, bytes) || (bytes.length === 16 && contains(candidate, mappedIPv4(bytes) ?? bytes));
}

/** `10.0.0.5`, `10.0.0.0/8`, `fd00::/8`; `null` for anything else. */
export function parseRange(text: string): AddressRange | null {
  const [address = "", prefix, ...rest] = text.split("/");
  const bytes = parseAddress(address);
  if (bytes === null || rest.length > 0) return null;
  const maxBits = bytes.length * 8;
  if (prefix === undefined) return { text, bytes, prefixBits: maxBits };
  if (!/^\d{1,3}$/.test(prefix) || Number(prefix) > maxBits) return null;
  return { text, bytes, prefixBits: Number(prefix) };
}

/** The bytes of an address in its plain spelling. Zones (`fe80::1%eth0`) are refused: they name the host's interfaces. */
function parseAddress(text: string): Uint8Array | null {
  if (isIPv4(text)) return Uint8Array.from(text.split("."), Number);
  return isIPv6(text) && !text.includes("%") ? parseIPv6(text) : null;
}

/** Same address, same text. */
export function canonicalAddress(text: string): string | null {
  const bytes = parseAddress(text);
  if (bytes === null) return null;
  const plain = bytes.length === 16 ? (mappedIPv4(bytes) ?? bytes) : bytes;
  if (plain.length === 4) return plain.join(".");
  return new URL(`http://[${text}]/`).hostname.slice(1, -1);
}

function parseIPv6(text: string): Uint8Array {
  const dotted = /^(.*:)(\d+\.\d+\.\d+\.\d+)$/.exec(text);
  const groupsOnly = dotted === null ? text : `${dotted[1]}${hexGroups(dotted[2] ?? "")}`;
  const [head = "", tail] = groupsOnly.split("::");
  const left = head === "" ? [] : head.split(":");
  const right = tail === undefined || tail === "" ? [] : tail.split(":");
  const groups = [...left, ...Array<string>(8 - left.length - right.length).fill("0"), ...right];
  return Uint8Array.from(
    groups.flatMap((group) => [Number.parseInt(group, 16) >> 8, Number.parseInt(group, 16) & 255]),
  );
}

function hexGroups(dotted: string): string {
  const [a = 0, b = 0, c = 0, d = 0] = dotted.split(".").map(Number);
  return `${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`;
}

function carriedIPv4(bytes: Uint8Array): Uint8Array | null {
  return contains(IPV4_MAPPED, bytes) || contains(NAT64, bytes) ? bytes.subarray(12) : null;
}

function mappedIPv4(bytes: Uint8Array): Uint8Array | null {
  return contains(IPV4_MAPPED, bytes) ? bytes.subarray(12) : null;
}

function lookUp(ranges: readonly (AddressRange & NotPublic)[], bytes: Uint8Array): NotPublic | null {
  const found = ranges.find((candidate) => contains(candidate, bytes));
  return found === undefined ? null : { range: found.range, meaning: found.meaning };
}

function contains({ bytes: base, prefixBits }: AddressRange, bytes: Uint8Array): boolean {
  if (base.length !== bytes.length) return false;
  for (let bit = 0; bit < prefixBits; bit += 8) {
    const index = bit >> 3;
    const mask = prefixBits - bit >= 8 ? 255 : (255 << (8 - (prefixBits - bit))) & 255;
    if (((base[index] ?? 0) & mask) !== ((bytes[index] ?? 0) & mask)) return false;
  }
  return true;
}

function overlaps(one: AddressRange, other: AddressRange): boolean {
  return one.prefixBits <= other.prefixBits ? contains(one, other.bytes) : contains(other, one.bytes);
}

function table(rows: readonly (readonly [string, string])[]): readonly (AddressRange & NotPublic)[] {
  return rows.map(([text, meaning]) => ({ ...range(text), range: text, meaning }));
}

function range(text: string): AddressRange {
  const parsed = parseRange(text);
  if (parsed === null) throw new RangeError(`${text} is not a range of addresses`);
  return parsed;
}
