/**
 * Writes one file of a workspace: a new file, complete before it gets the name.
 *
 * The draft is in the same directory, so it counts against the workspace's disk budget and needs no other mount. A
 * sandbox can change a draft like any file of its own; this has no effect outside.
 */

import { linkSync, renameSync } from "node:fs";
import { type FileHandle, lstat, open, unlink } from "node:fs/promises";
import { checkFileMode, FILE_MODE_BITS, type FileStat, SandlotError, type WriteOptions } from "@sandlot/contract";
import { errnoOf, inOurWords, isMissing } from "../../world/disk-trouble.ts";
import { giveBack } from "../../world/given-bytes.ts";
import { fdPath, OPEN_NEW } from "../descriptors.ts";
import { type Account, ownBy } from "./tree.ts";
import { checkPlain, describe } from "./tree-walk.ts";

export type Content = string | Uint8Array | AsyncIterable<Uint8Array>;

export interface HostWriteOptions extends WriteOptions {
  /** More is `payload_too_large`, and nothing has changed. */
  readonly maxBytes?: number;
}

interface Target {
  /** Descriptor of its directory. */
  readonly parent: number;
  readonly name: string;
  /** Its name in errors. */
  readonly path: string;
  readonly draft: string;
  readonly account: () => Account;
  readonly commit: (change: () => void) => Promise<void>;
}

const FILE_MODE = 0o644;

/** Reads asynchronous content only after the target was checked. */
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
    // Reading the content took time, so another file may have the name now.
    if (options.ifVersion !== undefined) checkVersion(path, await presentAt(final, path), options.ifVersion);
    // A link fails on an existing file, a rename replaces it.
    if (options.ifVersion === null) await target.commit(() => linkSync(draft, final));
    else await target.commit(() => renameSync(draft, final));
    // A walk that gives the workspace to another account may have missed both names.
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

/** The file under the name, if it is a regular file with only that name. */
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

/** How much may be buffered while earlier content is written. */
const AHEAD_MAX_BYTES = 1024 * 1024;

/** How much may be written to a file that has lost its name: no walk would find it, and no budget would count it. */
const UNSEEN_MAX_BYTES = 4 * 1024 * 1024;

/** Reads on while it writes: content that arrived meanwhile is written in one call. */
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
    // Reported by the `await` below.
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
    // The caller closes the file; a write must not still be running then.
    if (writing !== null) await writing;
  }
  await writeParts(file, waiting);
}

async function writeParts(file: FileHandle, parts: readonly Uint8Array[]): Promise<void> {
  if (parts.length === 0) return;
  const sizeBytes = parts.reduce((sum, part) => sum + part.length, 0);
  let { bytesWritten } = await file.writev(parts);
  if (bytesWritten === sizeBytes) return;
  // The kernel wrote a part; the rest goes piece by piece, and so meets the error that stopped it.
  for (const part of parts) {
    const skipped = Math.min(bytesWritten, part.length);
    bytesWritten -= skipped;
    for (let done = skipped; done < part.length; ) done += (await file.write(part, done)).bytesWritten;
  }
}

/** After a rename the draft is gone; after a link, or a failure, it is there. */
async function removeDraft(draft: string): Promise<void> {
  try {
    await unlink(draft);
  } catch (error) {
    if (!isMissing(error)) throw error;
  }
}
