/**
 * One spelling for every host.
 *
 * Rules are compared with the host in a request, and clients spell hosts freely: upper case, a dot at the end, Unicode,
 * IP addresses as one decimal number, in hexadecimal or in octal. All of them go through the one parser that every
 * browser and `fetch` use, and come out in one form, or not at all. The proxy resolves the same form that it compares,
 * so a client cannot reach a host that was not compared.
 */

import { canonicalAddress } from "./addresses.ts";

export type Host =
  | { readonly kind: "name"; readonly text: string }
  /** Canonical; IPv6 without brackets. */
  | { readonly kind: "address"; readonly text: string };

export interface Authority {
  readonly host: Host;
  readonly port: number;
}

const NAME_MAX_LENGTH = 253;
const NAME = /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*$/;
/** Characters that would make a text more than a host: user information, a path, an escape, a zone, white space. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for.
const NOT_IN_A_HOST = /[\u0000-\u0020\u007f@/\\?#%<>^|"`{}]/;

/** A host as a client or a rule wrote it, IPv6 in brackets. `null` when the text is not a host. */
export function parseHost(text: string): Host | null {
  if (text === "" || text.length > 4 * NAME_MAX_LENGTH || NOT_IN_A_HOST.test(text)) return null;
  const bracketed = text.startsWith("[");
  if (!bracketed && text.includes(":")) return null;
  const parsed = URL.parse(`http://${text}/`)?.hostname;
  if (parsed === undefined) return null;
  const plain = parsed.startsWith("[") ? parsed.slice(1, -1) : parsed.replace(/\.$/, "");
  const address = canonicalAddress(plain);
  if (address !== null) return { kind: "address", text: address };
  return plain.length <= NAME_MAX_LENGTH && NAME.test(plain) ? { kind: "name", text: plain } : null;
}

/** `host:port`, as in CONNECT and Host. Without a port the default one counts; without that, the port is required. */
export function parseAuthority(text: string, defaultPort?: number): Authority | null {
  const parts = /^(\[[^\]]*\]|[^:]*)(?::(\d{1,5}))?$/.exec(text);
  if (parts === null) return null;
  const host = parseHost(decodeUtf8(parts[1] ?? ""));
  const port = parts[2] === undefined ? defaultPort : Number(parts[2]);
  if (host === null || port === undefined || port < 1 || port > 65_535) return null;
  return { host, port };
}

/** The form before a port. */
export function writtenHost(host: Host): string {
  return host.kind === "address" && host.text.includes(":") ? `[${host.text}]` : host.text;
}

export function writtenAuthority({ host, port }: Authority): string {
  return `${writtenHost(host)}:${port}`;
}

/** Node hands header bytes over one by one (latin1). A name in Unicode is UTF-8 in there. */
function decodeUtf8(text: string): string {
  return Buffer.from(text, "latin1").toString("utf8");
}
