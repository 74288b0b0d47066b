/**
 * This host's workspaces in a store that several hosts share: they are used only for threads that live on this host.
 *
 * Without this, an upload would write to whichever host it reached, and the thread's sandbox on another one would never
 * see the file.
 *
 * Invariants
 * - Files of a thread are used on this disk only if the store says that the thread lives on this host's engine. It then
 *   stays there, with or without a sandbox, until it is purged.
 * - A thread that lives nowhere yet gets a sandbox first, with a lease: that settles it, here if it is new. One that
 *   lives elsewhere is refused with `thread_elsewhere`, which names the gateways to ask, before anything is read.
 * - A caller that goes away while the thread is settled leaves no place in the fleet's queue.
 */

import type { HostWorkspaces, WorkspaceFiles, WorkspaceKey } from "../backend/host-workspaces.ts";
import type { Fleet } from "../fleet.ts";
import type { ThreadUse } from "./thread-use.ts";

export function placedWorkspaces(
  host: HostWorkspaces,
  fleet: Pick<Fleet, "locate">,
  threads: ThreadUse,
): HostWorkspaces {
  const isHere = async ({ user, thread }: WorkspaceKey) => (await fleet.locate({ user, thread })) === "here";
  const { openFile, writeFile, measure } = host;
  return {
    async use<T>(key: WorkspaceKey, use: (files: WorkspaceFiles) => Promise<T>, signal?: AbortSignal): Promise<T> {
      if (await isHere(key)) return host.use(key, use, signal);
      const lease = await threads.acquire(key, "gateway: files", signal);
      try {
        return await host.use(key, use, signal);
      } finally {
        await threads.release(lease);
      }
    },
    // Where the thread is not settled here, the sandbox answers.
    ...(openFile && { openFile: async (key, path) => ((await isHere(key)) ? openFile.call(host, key, path) : null) }),
    ...(writeFile && {
      writeFile: async (key, path, content, options) =>
        (await isHere(key)) ? writeFile.call(host, key, path, content, options) : null,
    }),
    ...(measure && {
      measure: async (key, maxFiles) => ((await isHere(key)) ? measure.call(host, key, maxFiles) : null),
    }),
    // A copy on this disk would belong to no engine: branching goes through sandboxes.
  };
}
