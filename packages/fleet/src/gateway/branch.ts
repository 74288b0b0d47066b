/**
 * Copies a thread's workspace through two sandboxes, for backends whose workspaces this host cannot reach.
 *
 * All or nothing: when anything fails, the new thread is removed with its files. Symbolic links are skipped (in another
 * thread they would point at other things), and so are unfinished uploads.
 */

import { type FileStat, type Sandbox, SandlotError, WORKSPACE_ROOT } from "@sandlot/contract";
import type { ThreadKey, ThreadUse } from "./thread-use.ts";
import { type BranchOutcome, STAGED_PREFIX, STAGED_SUFFIX } from "./workspace-access.ts";

const DEPTH_MAX = 64;

export async function branchThroughSandboxes(
  threads: ThreadUse,
  from: ThreadKey,
  to: ThreadKey,
  signal: AbortSignal,
): Promise<BranchOutcome> {
  const source = await threads.acquire(from, "gateway: branch", signal);
  try {
    return await copyToNew(threads, source.sandbox, to, signal);
  } finally {
    await threads.release(source);
  }
}

async function copyToNew(
  threads: ThreadUse,
  source: Sandbox,
  to: ThreadKey,
  signal: AbortSignal,
): Promise<BranchOutcome> {
  const target = await threads.acquire(to, "gateway: branch", signal);
  const isNew = target.recovery.kind === "empty";
  try {
    if (!isNew) throw new SandlotError("thread_exists", { thread: to.thread });
    return await copyTree(source, target.sandbox, signal);
  } catch (error) {
    await threads.release(target);
    if (isNew) await threads.destroy(to, { purge: true, force: true });
    throw error;
  } finally {
    await threads.release(target);
  }
}

async function copyTree(source: Sandbox, target: Sandbox, signal: AbortSignal): Promise<BranchOutcome> {
  const { entries, truncated } = await source.files.list(WORKSPACE_ROOT, { depth: DEPTH_MAX });
  if (truncated) throw new SandlotError("too_many_files", { what: "The workspace", max: entries.length });
  const skipped: string[] = [];
  let fileCount = 0;
  let sizeBytes = 0;
  for (const entry of entries) {
    signal.throwIfAborted();
    if (isLeftOut(entry)) skipped.push(entry.path);
    else if (entry.kind === "directory") await target.files.mkdir(entry.path);
    else {
      await target.files.upload(entry.path, source.files.download(entry.path), { mode: entry.mode & 0o777 });
      fileCount += 1;
      sizeBytes += entry.sizeBytes;
    }
  }
  return { fileCount, sizeBytes, skipped };
}

function isLeftOut({ path, kind }: FileStat): boolean {
  const name = path.slice(path.lastIndexOf("/") + 1);
  const unfinished = name.startsWith(STAGED_PREFIX) && name.endsWith(STAGED_SUFFIX);
  return unfinished || (kind !== "file" && kind !== "directory");
}
