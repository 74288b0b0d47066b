/** Files as the AIO API describes, sorts and filters them. */

import { extname } from "node:path/posix";
import { isoTime } from "@sandlot/contract";
import { statPath } from "../files/change.ts";
import { join } from "../files/paths.ts";
import { pathPattern } from "../patterns/glob-pattern.ts";

export interface FileInfo {
  readonly name: string;
  readonly path: string;
  readonly is_directory: boolean;
  readonly size: number | null;
  readonly modified_time: string;
  readonly permissions: string;
  readonly extension: string | null;
}

/** Empty when the file is gone meanwhile. */
export function infoOf(path: string): FileInfo[] {
  try {
    const { kind, sizeBytes, modifiedAt, mode } = statPath(path);
    const name = path.slice(path.lastIndexOf("/") + 1);
    const is_directory = kind === "directory";
    return [
      {
        ...{ name, path, is_directory },
        size: is_directory ? null : sizeBytes,
        modified_time: isoTime(modifiedAt),
        permissions: mode.toString(8).padStart(3, "0"),
        extension: is_directory ? null : extname(name) || null,
      },
    ];
  } catch {
    return [];
  }
}

export function sorted(infos: readonly FileInfo[], by: string, descending: boolean): FileInfo[] {
  const key = (info: FileInfo): string | number =>
    by === "size"
      ? (info.size ?? 0)
      : by === "modified" || by === "modified_time"
        ? info.modified_time
        : by === "name"
          ? info.name
          : by === "type"
            ? `${info.extension ?? ""}/${info.name}`
            : info.path;
  const order = [...infos].sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0));
  return descending ? order.reverse() : order;
}

/** A pattern without a slash matches names at any depth. */
export function anywhere(pattern: string): string {
  return pattern.includes("/") ? pattern : `**/${pattern}`;
}

export function matchesAny(patterns: readonly string[], root: string, file: string): boolean {
  const relative = relativeTo(root, file);
  return patterns.some((pattern) => pathPattern(anywhere(pattern)).matches(relative));
}

/** Whether it, or a directory above it, matches. */
export function isLeftOut(patterns: readonly string[], root: string, file: string): boolean {
  const parts = relativeTo(root, file).split("/");
  return parts.some((_, index) => matchesAny(patterns, root, join(root, parts.slice(0, index + 1).join("/"))));
}

export function relativeTo(root: string, file: string): string {
  const below = join(root, "");
  return file.startsWith(below) ? file.slice(below.length) : file.slice(file.lastIndexOf("/") + 1);
}

export function isHidden(relative: string): boolean {
  return relative.split("/").some((name) => name.startsWith("."));
}
