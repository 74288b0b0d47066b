/**
 * Writing one file of a workspace: a new file, complete before it has the name.
 *
 * The draft lies in the same directory, so that it counts against the workspace's disk budget and needs no other mount.
 * A sandbox can do to a draft what it can do to any file of its own; nothing outside follows from it.
 */

import { type FileHandle, link, lstat, open, rename, unlink } from "node:fs/promises";
import { checkFileMode, FILE_MODE_BITS, type FileStat, SandlotError, type WriteOptions } from "@sandlot/contract";
import { errnoOf, inOurWords, isMissing } from "../../world/disk-trouble.ts";
import { giveBack } from "../../world/given-bytes.ts";
import { fdPath, OPEN_NEW } from "../descriptors.ts";
import { type Account, ownBy } from "./tree.ts";
import { checkPlain, describe } from "./walking.ts";

export type Content = string | Uint8Array | AsyncIterable<Uint8Array>;

export interface HostWriteOptions extends WriteOptions {
  /** More than this is `payload_too_large`, and then nothing has changed. */
  readonly maxBytes?: number;
}

interface Target {
  /** Descriptor of the directory that it is, or will be, in. */
  readonly parent: number;
  readonly name: string;
  /** How errors call it. */
  readonly path: string;
  readonly draft: string;
  readonly account: () => Account;
}

const FILE_MODE = 0o644;

/** Reads an asynchronous content only after the target was found fit for it. */
export async function writeFile(target: Target, content: Content, options: HostWriteOptions): Promise<FileStat> {
  const { parent, path, account } = target;
  const [draft, final] = [fdPath(parent, target.draft), fdPath(parent, target.name)];
  let file: FileHandle | undefined;
  checkFileMode(options.mode);
  try {
    const before = await presentAt(final, path);
    checkVersion(path, before, options.ifVersion);
    file = await open(draft, OPEN_NEW, 0o600);
    await writeAll(file, path, content, options);
    await file.chmod((options.mode ?? before?.mode ?? FILE_MODE) & FILE_MODE_BITS);
    const owner = await ownBy(file, account);
    // The content took its time, so what stands there now may be another file.
    if (options.ifVersion !== undefined) checkVersion(path, await presentAt(final, path), options.ifVersion);
    // A link fails where something stands, a rename replaces it.
    if (options.ifVersion === null) await link(draft, final);
    else await rename(draft, final);
    // A walk that gives the workspace to another account may have met neither name.
    await ownBy(file, account, owner);
    return describe(path, await file.stat({ bigint: true }));
  } catch (error) {
    if (options.ifVersion === null && errnoOf(error) === "EEXIST")
      checkVersion(path, await presentAt(final, path), null);
    throw inOurWords(error, path);
  } finally {
    await file?.close();
    if (file !== undefined) await removeDraft(draft);
  }
}

/** What stands under the name, if it is a plain file of that one name. */
async function presentAt(final: string, path: string): Promise<FileStat | null> {
  try {
    const stats = await lstat(final, { bigint: true });
    checkPlain(path, stats);
    if (stats.nlink > 1n)
      throw new SandlotError("invalid_path", { path, problem: "it has several names (hard links)" });
    return describe(path, stats);
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
}

function checkVersion(path: string, present: FileStat | null, expected: string | null | undefined): void {
  const actual = present?.version ?? null;
  if (expected !== undefined && actual !== expected) throw new SandlotError("file_changed", { path, expected, actual });
}

/** What may have come while what came before is still being written. */
const AHEAD_MAX_BYTES = 1024 * 1024;

/** What may be written to a file that has lost its name: no walk would find it, and no budget would count it. */
const UNSEEN_MAX_BYTES = 4 * 1024 * 1024;

/** Reads on while it writes: what has come meanwhile is written in one go. */
async function writeAll(file: FileHandle, path: string, content: Content, options: HostWriteOptions): Promise<void> {
  const { maxBytes = Number.POSITIVE_INFINITY } = options;
  let sizeBytes = 0;
  let waiting: Uint8Array[] = [];
  let waitingBytes = 0;
  let unseenBytes = 0;
  let writing: Promise<void> | null = null;
  const begin = () => {
    const parts = waiting;
    waiting = [];
    unseenBytes += waitingBytes;
    waitingBytes = 0;
    const done = writeParts(file, parts).then(async () => {
      if (unseenBytes > UNSEEN_MAX_BYTES) {
        unseenBytes = 0;
        if ((await file.stat()).nlink === 0) throw new SandlotError("file_not_found", { path });
      }
      writing = null;
      for (const part of parts) giveBack(part);
    });
    // Told where it is waited for.
    done.catch(() => undefined);
    writing = done;
  };
  const isWhole = typeof content === "string" || content instanceof Uint8Array;
  try {
    for await (const part of isWhole ? [content] : content) {
      const bytes = typeof part === "string" ? Buffer.from(part) : part;
      sizeBytes += bytes.length;
      if (sizeBytes > maxBytes) throw new SandlotError("payload_too_large", { what: path, maxBytes });
      waiting.push(bytes);
      waitingBytes += bytes.length;
      if (writing !== null && waitingBytes > AHEAD_MAX_BYTES) await writing;
      if (writing === null) begin();
    }
  } finally {
    // Whoever closes the file closes nothing that is still written to.
    if (writing !== null) await writing;
  }
  await writeParts(file, waiting);
}

async function writeParts(file: FileHandle, parts: readonly Uint8Array[]): Promise<void> {
  if (parts.length === 0) return;
  const sizeBytes = parts.reduce((sum, part) => sum + part.length, 0);
  let { bytesWritten } = await file.writev(parts);
  if (bytesWritten === sizeBytes) return;
  // The kernel took a part of it; the rest goes piece by piece, and so meets what stands in its way.
  for (const part of parts) {
    const skipped = Math.min(bytesWritten, part.length);
    bytesWritten -= skipped;
    for (let done = skipped; done < part.length; ) done += (await file.write(part, done)).bytesWritten;
  }
}

/** After a rename it is no longer there; after a link, or a failure, it is. */
async function removeDraft(draft: string): Promise<void> {
  try {
    await unlink(draft);
  } catch (error) {
    if (!isMissing(error)) throw error;
  }
}
