/**
 * Threads: a name with a sandbox, a workspace, or both. Listing creates nothing.
 *
 * A list is read from the store and the workspaces, without a lock: a thread that is created or purged meanwhile may be
 * missing or appear twice.
 */

import type { ThreadId, ThreadSummary, UserId } from "@sandlot/contract";
import type { Backend } from "../backend/backend.ts";
import { hasHome } from "../backend/workspace-binding.ts";
import { isAnonymous, type SandboxRecord } from "../store/record.ts";
import type { Store } from "../store/store.ts";
import { summarize } from "./summary.ts";

export interface ThreadParts {
  readonly store: Store;
  readonly backend: Backend;
}

interface Key {
  readonly user: UserId;
  readonly thread: ThreadId;
}

export async function listThreads({ store, backend }: ThreadParts, user: UserId | null): Promise<ThreadSummary[]> {
  const owners = (await backend.workspaces.owners?.()) ?? [];
  const found = new Map<string, ThreadSummary>();
  const put = ({ user: whose, thread }: Key, record: SandboxRecord | null) => {
    if (isAnonymous(thread) || (user !== null && whose !== user)) return;
    found.set(`${whose}/${thread}`, { user: whose, thread, sandbox: record && summarize(record) });
  };
  for (const owner of owners) put(owner, null);
  for (const record of await store.list()) {
    const { user: whose, thread } = record;
    if (whose !== null && thread !== null) put({ user: whose, thread }, record);
  }
  return [...found.entries()].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, summary]) => summary);
}

export async function findThread({ store, backend }: ThreadParts, key: Key): Promise<ThreadSummary | null> {
  const record = await store.find(key.user, key.thread);
  if (record !== null) return { ...key, sandbox: summarize(record) };
  return (await hasHome(backend.workspaces, key)) ? { ...key, sandbox: null } : null;
}
