/**
 * Paths as tool code writes them, and where they are on the host. This is what takes the place of mounts where there are
 * no namespaces: at the edge of the API, and nowhere else. A command that looks further sees the host.
 *
 * Invariants
 * - The longest mapping wins, and a mapping ends at a slash: `/mnt/user-data-2` is not in `/mnt/user-data`.
 * - What is asked for through the API stays inside its mapping, with links resolved, and read-only means read-only by the
 *   most specific mapping of where it really is.
 * - What comes back names the path that was asked for, never the host's.
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
  /** The call is about the link itself and not about what it leads to. */
  readonly keepsLink?: boolean;
}

/** What may stand before and after a path in a text for it to be one. */
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

  /** Where a path is. What no mapping holds is the host's own. */
  toHost(path: string, access: Access = {}): string {
    const plain = posix.normalize(path);
    const mapping = longest(this.#mappings, ({ seen }) => isWithin(plain, seen));
    if (mapping === undefined || !posix.isAbsolute(path)) return path;
    // A slash at the end stays: that it must be a directory is for whoever opens it to find out.
    const host = join(mapping.host, plain.slice(mapping.seen.length));
    this.#check(path, host.replace(/(?<=.)\/$/, ""), mapping, access);
    return host;
  }

  /** The path that tool code knows it by. */
  toSeen(host: string): string {
    const mapping = longest(
      this.#mappings,
      (one) => isWithin(host, one.host),
      (one) => one.host,
    );
    return mapping === undefined ? host : mapping.seen + host.slice(mapping.host.length);
  }

  /** A text with every path in it as the host has it. */
  textToHost(text: string): string {
    return text.replace(this.#inward, (seen) => this.#mappings.find((one) => one.seen === seen)?.host ?? seen);
  }

  /** A text with every path in it as tool code knows it. */
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

/** With links resolved, as far as it exists. */
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
