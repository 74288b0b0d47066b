/**
 * A folder of a sandbox as a tar stream, read entry by entry while it is sent.
 *
 * Invariants
 * - Everything in it comes from inside, and may change or lie meanwhile. A file has the size in its header: what it grew
 *   is cut off, and one that shrank ends the stream with an error, because an archive with a hole looks whole.
 * - An entry is a member of the folder that lists it, by its name: what an archive unpacks stays below its own folder.
 * - Links are not followed. What is left out, for that or another reason, is named in a file at the end.
 * - At most `ENTRIES_MAX` entries and `DEPTH_MAX` levels; one listing and one file are in memory at a time.
 */

import { type FileStat, isSandlotError, type Sandbox, SandlotError } from "@sandlot/contract";
import { padding, TAR_END, type TarEntry, tarHeader } from "../../host/checkpoints/export/tar-writer.ts";

const ENTRIES_MAX = 100_000;
const DEPTH_MAX = 100;
/** Names in the file of what was left out. Further ones are counted. */
const NAMED_MAX = 1_000;
const FULL = `entries in it: the archive has ${ENTRIES_MAX} already`;
const LEFT_OUT = "LEFT-OUT.txt";

type Files = Pick<Sandbox["files"], "list" | "download">;

export async function* folderTar(files: Files, folder: FileStat, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  if (folder.kind !== "directory") throw new SandlotError("not_a_directory", { path: folder.path });
  const root = baseOf(folder.path);
  const left = new LeftOut();
  let count = 0;
  /** No further folder is listed: a listing costs more than its folder's header. */
  let isFull = false;
  const open = [{ stat: folder, depth: 0 }];
  for (let at = open.pop(); at !== undefined; at = open.pop()) {
    signal.throwIfAborted();
    const { stat, depth } = at;
    const name = `${root}${stat.path.slice(folder.path.length)}`;
    count += 1;
    if (stat.kind === "file") yield* fileIn(files, stat, name);
    else if (stat.kind === "symlink") left.add(name, "a link");
    else if (stat.kind !== "directory") left.add(name, "neither a file nor a folder");
    else if (depth >= DEPTH_MAX) left.add(name, `more than ${DEPTH_MAX} folders deep`);
    else {
      yield tarHeader(entryOf(stat, `${name}/`, 0));
      if (isFull) {
        left.add(name, FULL);
        continue;
      }
      const listing = await listOf(files, stat, depth);
      if (listing === null) left.add(name, "it was removed meanwhile");
      else if (listing.truncated) left.add(name, "it has more entries than one listing");
      const members = (listing?.entries ?? []).filter((entry) => isMember(stat.path, entry.path));
      const strangers = (listing?.entries.length ?? 0) - members.length;
      if (strangers > 0) left.add(name, `${strangers} entries that are not in it`);
      const room = Math.max(0, ENTRIES_MAX - count - open.length);
      isFull = members.length >= room;
      if (members.length > room) left.add(name, FULL);
      // The stack gives them back in the listing's order.
      for (const entry of members.slice(0, room).reverse()) open.push({ stat: entry, depth: depth + 1 });
    }
  }
  if (!left.isEmpty) yield* textIn(`${root}/${LEFT_OUT}`, left.text(), folder.modifiedAt);
  yield TAR_END;
}

function isMember(folder: string, path: string): boolean {
  const start = folder.endsWith("/") ? folder : `${folder}/`;
  const name = path.slice(start.length);
  return path.startsWith(start) && name !== "" && name !== "." && name !== ".." && !/[/\0]/.test(name);
}

/** `null`: a folder that went away below the one that was asked for. */
async function listOf(files: Files, { path }: FileStat, depth: number) {
  try {
    return await files.list(path, { depth: 1 });
  } catch (error) {
    if (depth > 0 && (isSandlotError(error, "file_not_found") || isSandlotError(error, "not_a_directory"))) return null;
    throw error;
  }
}

async function* fileIn(files: Files, stat: FileStat, name: string): AsyncGenerator<Uint8Array> {
  const { path, sizeBytes: size } = stat;
  yield tarHeader(entryOf(stat, name, size));
  let sent = 0;
  if (size > 0)
    for await (const piece of files.download(path, { length: size })) {
      const rest = piece.subarray(0, size - sent);
      sent += rest.byteLength;
      yield rest;
      if (sent >= size) break;
    }
  if (sent < size) throw new Error(`${JSON.stringify(path)} became shorter while it was read`);
  yield padding(size);
}

function* textIn(name: string, text: string, modifiedAt: number): Generator<Uint8Array> {
  const bytes = Buffer.from(text);
  yield tarHeader({ ...entryOf({ kind: "file", modifiedAt }, name, bytes.byteLength), mode: 0o644 });
  yield bytes;
  yield padding(bytes.byteLength);
}

function entryOf({ kind, modifiedAt }: Pick<FileStat, "kind" | "modifiedAt">, name: string, size: number): TarEntry {
  const isFolder = kind === "directory";
  const ms = Number.isFinite(modifiedAt) ? Math.round(modifiedAt) : 0;
  return {
    path: Buffer.from(name).toString("latin1"),
    kind: isFolder ? "directory" : "file",
    mode: isFolder ? 0o755 : 0o644,
    modified: BigInt(ms) * 1_000n,
    size,
    target: null,
  };
}

class LeftOut {
  readonly #lines: string[] = [];
  #more = 0;

  get isEmpty(): boolean {
    return this.#lines.length === 0;
  }

  add(name: string, why: string): void {
    if (this.#lines.length < NAMED_MAX) this.#lines.push(`${JSON.stringify(name)}: ${why}`);
    else this.#more += 1;
  }

  text(): string {
    const more = this.#more === 0 ? [] : [`and ${this.#more} more`];
    return `${[...this.#lines, ...more].join("\n")}\n`;
  }
}

function baseOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1) || "files";
}
