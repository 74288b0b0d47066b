/**
 * Maps tool code's paths to paths of the host. It replaces mounts where there are no namespaces: at the edge of the
 * API, and nowhere else. A command still sees all of the host.
 *
 * Invariants
 * - The longest mapping wins, and a mapping ends at a slash: `/mnt/user-data-2` is not in `/mnt/user-data`.
 * - Paths in API calls stay inside their mapping, with links resolved. The most specific mapping of the real path
 *   decides whether it is read-only.
 * - Results name the caller's path, never the host's.
 */

import { realpathSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import { SandlotError } from "@sandlot/contract";
import { isWithin } from "../../../world/paths.ts";

export interface Mapping {
  /** As tool code writes it. */
  readonly seen: string;
  readonly host: string;
  readonly readOnly: boolean;
}

export interface Access {
  readonly writes?: boolean;
  /** The call concerns the link itself and not its target. */
  readonly keepsLink?: boolean;
}

/** The characters that may stand before and after a path in a text. */
const BEFORE = "(?<![\\w./-])";
const AFTER = "(?![\\w.-])";

export class PathMap {
  readonly #mappings: readonly Mapping[];
  readonly #inward: RegExp;
  readonly #outward: RegExp;

  constructor(mappings: readonly Mapping[]) {
    this.#mappings = mappings;
    this.#inward = pattern(mappings.map(({ seen }) => seen));
    this.#outward = pattern(mappings.map(({ host }) => host));
  }

  /** The host's path. A path without a mapping is the host's own. */
  toHost(path: string, access: Access = {}): string {
    const plain = posix.normalize(path);
    const mapping = longest(this.#mappings, ({ seen }) => isWithin(plain, seen));
    if (mapping === undefined || !posix.isAbsolute(path)) return path;
    // Keeps a slash at the end: opening it checks that it is a directory.
    const host = join(mapping.host, plain.slice(mapping.seen.length));
    this.#check(path, host.replace(/(?<=.)\/$/, ""), mapping, access);
    return host;
  }

  /** Tool code's name of the path. */
  toSeen(host: string): string {
    const mapping = longest(
      this.#mappings,
      (one) => isWithin(host, one.host),
      (one) => one.host,
    );
    return mapping === undefined ? host : mapping.seen + host.slice(mapping.host.length);
  }

  /** A text with all of its paths mapped to the host's. */
  textToHost(text: string): string {
    return text.replace(this.#inward, (seen) => this.#mappings.find((one) => one.seen === seen)?.host ?? seen);
  }

  /** A text with all of its paths mapped to tool code's. */
  textToSeen(text: string): string {
    return text.replace(this.#outward, (host) => this.#mappings.find((one) => one.host === host)?.seen ?? host);
  }

  #check(path: string, host: string, mapping: Mapping, { writes = false, keepsLink = false }: Access): void {
    const real = keepsLink ? join(realOf(dirname(host)), posix.basename(host)) : realOf(host);
    const root = realOf(mapping.host);
    if (!isWithin(real, root) && host !== mapping.host) {
      const holder = longest(
        this.#mappings,
        (one) => isWithin(real, realOf(one.host)),
        (one) => one.host,
      );
      if (holder === undefined)
        throw new SandlotError("invalid_path", { path, problem: "it leads out of its directory" });
    }
    if (!writes) return;
    const at =
      longest(
        this.#mappings,
        (one) => isWithin(real, realOf(one.host)),
        (one) => one.host,
      ) ?? mapping;
    if (mapping.readOnly || at.readOnly) throw new SandlotError("read_only_path", { path });
  }
}

/** With links resolved, as far as the path exists. */
function realOf(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    const parent = dirname(path);
    return parent === path ? path : join(realOf(parent), posix.basename(path));
  }
}

function longest(
  mappings: readonly Mapping[],
  holds: (mapping: Mapping) => boolean,
  by: (mapping: Mapping) => string = ({ seen }) => seen,
): Mapping | undefined {
  return mappings.filter(holds).sort((a, b) => by(b).length - by(a).length)[0];
}

/** Matches any of the paths at its own boundaries, the longest first. */
function pattern(paths: readonly string[]): RegExp {
  const escaped = [...paths]
    .sort((a, b) => b.length - a.length)
    .map((path) => path.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"));
  return new RegExp(`${BEFORE}(?:${escaped.join("|")})${AFTER}`, "g");
}
