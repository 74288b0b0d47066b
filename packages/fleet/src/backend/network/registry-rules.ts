/**
 * What a sandbox may read of package registries.
 *
 * - A rule is one place: a host, a port, and a path that everything read begins with. Only `GET` and `HEAD` pass.
 * - Credentials of a rule go to its host with requests that the rule passes, and with no other.
 * - A path is compared in the form that every server reads the same way; any other form is refused.
 */

import { SandlotError } from "@sandlot/contract";
import { type AddressRange, canBeException, parseRange } from "./addresses.ts";
import { type Host, parseHost, writtenHost } from "./host-name.ts";

export const REGISTRY_TOOLS = ["pip", "npm", "cargo", "go"] as const;
export type RegistryTool = (typeof REGISTRY_TOOLS)[number];

/** A registry's host that the configuration names: the consent to use the machine's credentials or a private address. */
export interface MirrorConsent {
  readonly host: string;
  readonly addresses?: readonly string[] | undefined;
}

export interface RegistryRule {
  readonly tool: RegistryTool;
  /** `http` or `https`, a host, and the path that everything below is read from. It holds no credentials. */
  readonly url: string;
  /** The file, variable, program or index that named it. */
  readonly origin: string;
  readonly addresses?: readonly string[] | undefined;
  readonly credential?: RegistryCredential | undefined;
}

export interface RegistryCredential {
  /** The file or variable that it was found in. */
  readonly origin: string;
  /** The value of the header Authorization. */
  readonly authorization: string;
  /** Texts that no response may show. */
  readonly values: readonly string[];
}

/** What the proxy needs of the registries of a blueprint. */
export interface RegistryAccess {
  readonly rules: readonly RegistryRule[];
  /** Where a registry may send its readers on to although the address is private. */
  readonly mirrors: readonly MirrorConsent[];
  /** Variables for the tools inside. */
  readonly environment: Readonly<Record<string, string>>;
  /** Files for the tools inside. `name` is beside the proxy's own; `at` is its place inside, where that is fixed. */
  readonly files: readonly { readonly name: string; readonly content: string; readonly at?: string | undefined }[];
  /** Certificates of authorities that the machine's configuration trusts for its registries, in PEM. */
  readonly trusted: readonly string[];
}

export interface CompiledRegistry {
  readonly tool: RegistryTool;
  readonly origin: string;
  readonly via: "http" | "https";
  readonly host: Host;
  readonly port: number;
  /** Begins and ends with a slash. */
  readonly path: string;
  readonly addresses: readonly AddressRange[] | null;
  readonly credential: RegistryCredential | null;
  /** For messages. */
  readonly text: string;
}

export function compileRegistry(rule: RegistryRule, path: string): CompiledRegistry {
  const parsed = URL.parse(rule.url);
  const via = parsed?.protocol === "https:" ? "https" : parsed?.protocol === "http:" ? "http" : null;
  const host = parsed === null ? null : parseHost(parsed.hostname);
  if (parsed === null || via === null || host === null || parsed.username !== "" || parsed.password !== "") {
    throw invalid(path, `the address of ${rule.tool} that ${rule.origin} names is no http or https address of a host`);
  }
  if (via === "https" && host.kind !== "name") {
    const problem = `${rule.origin} names ${writtenHost(host)} for ${rule.tool} over https; a registry over https needs a host name`;
    throw invalid(path, problem);
  }
  const port = parsed.port === "" ? (via === "https" ? 443 : 80) : Number(parsed.port);
  const below = parsed.pathname.endsWith("/") ? parsed.pathname : `${parsed.pathname}/`;
  return {
    tool: rule.tool,
    origin: rule.origin,
    ...{ via, host, port, path: below },
    addresses: rule.addresses?.map((text, index) => namedRange(text, `${path}.addresses[${index}]`)) ?? null,
    credential: rule.credential ?? null,
    text: `${via}://${writtenHost(host)}${parsed.port === "" ? "" : `:${port}`}${below}`,
  };
}

/** An exception from the rule that only public addresses are reached. */
export function namedRange(text: string, path: string): AddressRange {
  const range = parseRange(text);
  if (range === null) throw invalid(path, `${JSON.stringify(text)} is neither an address nor a range like 10.1.2.0/24`);
  if (!canBeException(range))
    throw invalid(
      path,
      `${text} holds addresses that no sandbox may reach: the host's loopback, link-local, cloud metadata or multicast`,
    );
  return range;
}

/** Whether a request's path, with its query, lies below `base`, however a server decodes it. */
export function isBelow(base: string, pathAndQuery: string): boolean {
  const [path = ""] = pathAndQuery.split("?", 1);
  if (!(path.startsWith(base) || `${path}/` === base)) return false;
  let text = path;
  // A server decodes once; one behind a careless proxy decodes twice.
  for (let round = 0; round < 3; round++) {
    if (text.includes("\\") || text.split("/").some((segment) => segment === ".." || segment === ".")) return false;
    const decoded = decode(text);
    if (decoded === null) return false;
    if (decoded === text) return true;
    text = decoded;
  }
  return false;
}

function decode(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

function invalid(path: string, problem: string): SandlotError {
  return new SandlotError("config_invalid", { path, problem });
}
