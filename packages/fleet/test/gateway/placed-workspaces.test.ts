import { parseThreadId, parseUserId } from "@sandlot/contract";
import { expect, test } from "vitest";
import type { HostWorkspaces } from "../../src/backend/host-workspaces.ts";
import { placedWorkspaces } from "../../src/gateway/placed-workspaces.ts";
import type { ThreadUse } from "../../src/gateway/thread-use.ts";
import { WorkspaceAccess } from "../../src/gateway/workspace-access.ts";
import { systemWorld } from "../../src/world/system-world.ts";

test("a caller that goes away while its new thread waits for a sandbox stops waiting", async () => {
  const host: HostWorkspaces = { use: () => Promise.reject(new Error("the thread has not settled")) };
  let waiting = 0;
  // A full fleet: only the signal ends the wait.
  const acquire: ThreadUse["acquire"] = (_key, _purpose, signal) =>
    new Promise((_resolve, reject) => {
      waiting += 1;
      signal?.addEventListener("abort", () => {
        waiting -= 1;
        reject(signal.reason);
      });
    });
  const threads = { acquire } as ThreadUse;
  const placed = placedWorkspaces(host, { locate: async () => "unsettled" }, threads);
  const access = new WorkspaceAccess(threads, systemWorld(), placed);
  const caller = new AbortController();
  const key = { user: parseUserId("alice"), thread: parseThreadId("t1") };
  const outcome = access.use(key, "upload", caller.signal, async () => "used").catch(String);
  await expect.poll(() => waiting).toBe(1);
  caller.abort("gone away");
  expect(waiting).toBe(0);
  expect(await outcome).toBe("gone away");
});
