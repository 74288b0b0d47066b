/** Parses what GNU's `stat` and `find` print about a file. */

import type { FileStat } from "@sandlot/contract";

type Kind = FileStat["kind"];

const TYPE_MASK = 0o170000;
const TYPES: ReadonlyMap<number, Kind> = new Map([
  [0o100000, "file"],
  [0o040000, "directory"],
  [0o120000, "symlink"],
]);
const LETTERS: Readonly<Record<string, Kind>> = { f: "file", d: "directory", l: "symlink" };

/** `%f %s %.9Y %i` of `stat`. */
export function parseStat(path: string, line: string): FileStat {
  const [mode = "0", size = "0", time = "0", inode = "0"] = line.split(" ");
  const bits = Number.parseInt(mode, 16);
  return fileStat(path, TYPES.get(bits & TYPE_MASK) ?? "other", bits & 0o7777, size, time, inode);
}

export interface ListedEntry {
  /** Relative to the listed directory. */
  readonly relative: string;
  readonly stat: FileStat;
}

/** `%y %m %s %T@ %i %P` of `find`. */
export function parseEntry(directory: string, line: string): ListedEntry {
  const [letter = "", mode = "0", size = "0", time = "0", inode = "0"] = line.split(" ", 5);
  // The rest is the name, with any characters.
  const relative = line.slice([letter, mode, size, time, inode].join(" ").length + 1);
  const path = directory === "/" ? `/${relative}` : `${directory}/${relative}`;
  const stat = fileStat(path, LETTERS[letter] ?? "other", Number.parseInt(mode, 8), size, nanoseconds(time), inode);
  return { relative, stat };
}

function fileStat(path: string, kind: Kind, mode: number, size: string, time: string, inode: string): FileStat {
  return {
    path,
    kind,
    // The size of a directory's own names has no meaning for callers.
    sizeBytes: kind === "file" || kind === "symlink" ? Number(size) : 0,
    mode,
    modifiedAt: Number(time) * 1_000,
    version: `${inode}.${time}.${size}`,
  };
}

/** `find` prints one digit more than `stat`. */
function nanoseconds(time: string): string {
  const [seconds = "0", fraction = ""] = time.split(".");
  return `${seconds}.${fraction.slice(0, 9).padEnd(9, "0")}`;
}
