/**
 * Unpacks a tar stream, plain or gzip, into a new workspace. Everything in it is hostile.
 *
 * Entries below one of a workspace's own directories go there, as an export writes them; all others below `workspace`.
 *
 * Invariants
 * - Every name is created below its parent's descriptor, opened without following links: no entry leads out, and none
 *   goes through a link that an earlier one has planted.
 * - Links are created as they are, and never followed here. A hard link needs a regular file of the same archive.
 * - Bytes, entries and depth are bounded. What is no file, directory or link is skipped and listed.
 */

import { createReadStream } from "node:fs";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { HOME_DIRECTORY, SandlotError, WORKSPACE_DIRECTORIES, WORKSPACE_ROOT } from "@sandlot/contract";
import { extract, type Header as TarHeader } from "tar-stream";
import type { Budget } from "../../../backend/checkpoints.ts";
import { errnoOf } from "../../../world/disk-trouble.ts";
import { isDraft } from "../../../world/drafts.ts";
import { ACP_DIRECTORY } from "../../workspaces/layout.ts";
import type { HeldHome } from "../../workspaces/restoring.ts";
import type { Context } from "../context.ts";
import { OPEN_INSIDE, OPEN_NEW } from "../restore/builder.ts";
import { at, calls, ofDescriptor, secondsOf, writeAll } from "../store/calls.ts";
import { bytesOf } from "../take/path-list.ts";

/** U+FFFD: its bytes were no UTF-8, and are lost. Such an entry is skipped and listed. */
const LOST = bytesOf("\ufffd");
const ENTRIES_MAX = 5_000_000;
const DEPTH_MAX = 500;
const SKIPPED_MAX = 1_000;
const OWN_DIRECTORIES: ReadonlySet<string> = new Set([...WORKSPACE_DIRECTORIES, HOME_DIRECTORY, ACP_DIRECTORY]);

/** The types of the library leave the records of a pax header open. */
type Header = Omit<TarHeader, "pax"> & { readonly pax?: Readonly<Record<string, string>> | null };
type Content = AsyncIterable<Uint8Array> & { resume(): void };

interface Options {
  readonly root: number;
  readonly held: HeldHome;
  readonly budget: Budget | null;
}

export async function unpack(context: Context, path: string, options: Options): Promise<readonly string[]> {
  const unpacking = new Unpacking(context, options);
  // Names are bytes; those of a pax header are read as UTF-8 in any case.
  const names = { filenameEncoding: "latin1" };
  const reading = extract(names as Parameters<typeof extract>[0]);
  const isPacked = isGzip(path);
  try {
    const input = createReadStream(path, { highWaterMark: 256 * 1024 });
    const unpacked = isPacked ? pipeline(input, createGunzip(), reading) : pipeline(input, reading);
    // Its error ends the loop below, too.
    unpacked.catch(() => undefined);
    for await (const entry of reading) await unpacking.entry(entry.header as Header, entry as unknown as Content);
    await unpacked;
  } catch (error) {
    if (error instanceof SandlotError || errnoOf(error)?.startsWith("E") === true) throw error;
    const problem = `it is no tar archive that can be read: ${error instanceof Error ? error.message : String(error)}`;
    throw new SandlotError("invalid_path", { path: "the archive", problem });
  }
  unpacking.settle();
  return unpacking.skipped;
}

function isGzip(path: string): boolean {
  const descriptor = calls.open(path, 0);
  const head = Buffer.alloc(2);
  try {
    return calls.read(descriptor, head, 0, 2, 0) === 2 && head[0] === 0x1f && head[1] === 0x8b;
  } finally {
    calls.close(descriptor);
  }
}

class Unpacking {
  readonly skipped: string[] = [];
  readonly #context: Context;
  readonly #options: Options;
  /** Mode and time come last, so that a directory can be filled first. */
  readonly #directories = new Map<string, { readonly mode: number; readonly modified: bigint }>();
  #entries = 0;
  #bytes = 0;

  constructor(context: Context, options: Options) {
    this.#context = context;
    this.#options = options;
  }

  async entry(header: Header, content: Content): Promise<void> {
    this.#entries++;
    const { maxFiles = ENTRIES_MAX, maxBytes = Number.POSITIVE_INFINITY } = this.#options.budget ?? {};
    if (this.#entries > Math.min(ENTRIES_MAX, maxFiles * 2)) throw overBudget();
    if (this.#bytes + (header.size ?? 0) > maxBytes) throw overBudget();
    const names = namesOf(pathOf(header));
    const parent = names === null ? null : this.#parent(names);
    const name = names?.at(-1);
    if (parent === null || names === null || name === undefined) this.#skip(header, content);
    else
      try {
        const path = names.join("/");
        if (!(await this.#create(parent, name, path, header, content))) this.#skip(header, content);
      } catch (error) {
        if (!["ENAMETOOLONG", "EISDIR", "ENOTEMPTY", "EEXIST"].includes(errnoOf(error) ?? "")) throw error;
        this.#skip(header, content);
      } finally {
        calls.close(parent);
      }
    this.#context.onProgress({ phase: "applying", files: this.#entries, bytes: this.#bytes, totalFiles: null });
  }

  /** Deepest first: a mode may close a directory. */
  settle(): void {
    for (const [path, facts] of [...this.#directories].sort(([a], [b]) => b.length - a.length)) {
      const descriptor = this.#open(path.split("/"), false);
      if (descriptor === null) continue;
      calls.chmod(`${ofDescriptor(descriptor)}/.`, facts.mode);
      calls.utimes(`${ofDescriptor(descriptor)}/.`, secondsOf(facts.modified));
      calls.close(descriptor);
    }
  }

  async #create(parent: number, name: string, path: string, header: Header, content: Content): Promise<boolean> {
    const mode = (header.mode ?? 0o644) & 0o777;
    const modified = BigInt(Math.round((header.mtime?.getTime() ?? 0) * 1_000));
    switch (header.type) {
      case "file":
      case "contiguous-file":
        this.#free(parent, name);
        await this.#file(parent, name, mode, modified, content);
        return true;
      case "directory":
        this.#directory(parent, name);
        if (path.includes("/") || !OWN_DIRECTORIES.has(path)) this.#directories.set(path, { mode, modified });
        content.resume();
        return true;
      case "symlink":
        this.#free(parent, name);
        calls.symlink(linkOf(header), at(parent, name));
        this.#own(at(parent, name));
        calls.lutimes(at(parent, name), secondsOf(modified));
        content.resume();
        return true;
      case "link": {
        const target = namesOf(linkOf(header));
        const from = target === null ? null : this.#open(target.slice(0, -1), false);
        if (from === null) return false;
        try {
          const source = at(from, target?.at(-1) ?? "");
          if (calls.lstat(source)?.isFile() !== true) return false;
          this.#free(parent, name);
          calls.link(source, at(parent, name));
        } finally {
          calls.close(from);
        }
        content.resume();
        return true;
      }
      default:
        return false;
    }
  }

  async #file(
    parent: number,
    name: string,
    mode: number,
    modified: bigint,
    content: AsyncIterable<Uint8Array>,
  ): Promise<void> {
    const descriptor = calls.open(at(parent, name), OPEN_NEW, mode);
    try {
      for await (const bytes of content) {
        writeAll(descriptor, bytes);
        this.#bytes += bytes.length;
      }
      const { account } = this.#options.held;
      if (account !== null) calls.fchown(descriptor, account.uid, account.gid);
      calls.futimes(descriptor, secondsOf(modified));
    } finally {
      calls.close(descriptor);
    }
  }

  #directory(parent: number, name: string): void {
    const there = calls.lstat(at(parent, name));
    if (there?.isDirectory() === true) return;
    this.#free(parent, name);
    calls.mkdir(at(parent, name), 0o755);
    this.#own(at(parent, name));
  }

  /** A later entry takes the name of an earlier one. */
  #free(parent: number, name: string): void {
    const there = calls.lstat(at(parent, name));
    if (there === undefined) return;
    if (there.isDirectory()) calls.rmdir(at(parent, name));
    else calls.unlink(at(parent, name));
  }

  #own(path: string | Buffer): void {
    const { account } = this.#options.held;
    if (account !== null) calls.lchown(path, account.uid, account.gid);
  }

  #parent(names: readonly string[]): number | null {
    return names.length > DEPTH_MAX ? null : this.#open(names.slice(0, -1), true);
  }

  /** `null` where something else than a directory is in the way. */
  #open(names: readonly string[], isMade: boolean): number | null {
    let descriptor = calls.open(`${ofDescriptor(this.#options.root)}/.`, OPEN_INSIDE);
    try {
      for (const name of names) {
        if (isMade && calls.lstat(at(descriptor, name)) === undefined) {
          calls.mkdir(at(descriptor, name), 0o755);
          this.#own(at(descriptor, name));
        }
        const next = calls.open(at(descriptor, name), OPEN_INSIDE);
        calls.close(descriptor);
        descriptor = next;
      }
      return descriptor;
    } catch (error) {
      calls.close(descriptor);
      if (["ENOTDIR", "ELOOP", "ENOENT", "ENAMETOOLONG"].includes(errnoOf(error) ?? "")) return null;
      throw error;
    }
  }

  #skip(header: Header, content: { resume(): void }): void {
    content.resume();
    if (this.skipped.length < SKIPPED_MAX) this.skipped.push(pathOf(header));
  }
}

/** Latin-1. */
function pathOf({ name, pax }: Header): string {
  return pax?.path === undefined ? name : bytesOf(pax.path);
}

function linkOf({ linkname, pax }: Header): string {
  return pax?.linkpath === undefined ? (linkname ?? "") : bytesOf(pax.linkpath);
}

/** Below the workspace's root; `null` for what leads out of it, or has no name. */
function namesOf(path: string): string[] | null {
  if (path.startsWith("/") || path.includes("\0")) return null;
  const names = path.split("/").filter((name) => name !== "" && name !== ".");
  const [first] = names;
  if (
    first === undefined ||
    names.includes("..") ||
    names.some((name) => isDraft(name) || name.length > 255 || name.includes(LOST))
  )
    return null;
  return OWN_DIRECTORIES.has(first) ? names : ["workspace", ...names];
}

function overBudget(): SandlotError {
  return new SandlotError("disk_limit_exceeded", { path: WORKSPACE_ROOT });
}
