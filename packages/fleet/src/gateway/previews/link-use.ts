/**
 * One use of a preview link or an AIO URL: whether it may begin now, and when it has to end.
 *
 * Invariants
 * - A link has its key's present rights, and none once the key is revoked.
 * - A link leads to an existing thread. It creates a sandbox for the thread's files, never a thread.
 * - A link that names a sandbox leads to that one only, never to a later one of its thread.
 * - A use ends when the link expires, and within `KEY_RECHECK_MS` after its key was revoked at any gateway of this
 *   home.
 */

import { type ApiKeyInfo, SandlotError } from "@sandlot/contract";
import type { Lease } from "../../fleet.ts";
import type { World } from "../../world/world.ts";
import { grantedTo } from "../guards/caller.ts";
import type { ApiKeys } from "../keys/api-keys.ts";
import type { LeasedSandbox } from "../provisioner/provisioned-leases.ts";
import type { ThreadKey } from "../thread-key.ts";
import type { ThreadUse } from "../thread-use.ts";

/** How long a stream may outlive its key. A shorter time reads the key's file more often, for each open stream. */
const KEY_RECHECK_MS = 2_000;

/** The claims of every link, in its token or its file. */
export interface LinkClaims extends ThreadKey {
  /** The key that made it. */
  readonly keyId: string;
  readonly expiresAt: number;
  /** The only sandbox of the thread that it leads to. Absent: the present one. */
  readonly provisioned?: LeasedSandbox;
}

export interface LinkUseParts {
  readonly keys: Pick<ApiKeys, "find">;
  readonly threads: Pick<ThreadUse, "acquireExisting" | "release">;
  readonly world: World;
}

/** Takes a lease for one use. `end` is called at most once, when the use has to end before its release. */
export async function useLink(
  { keys, threads, world }: LinkUseParts,
  claims: LinkClaims,
  use: { readonly purpose: string; readonly signal: AbortSignal; readonly end: () => void },
): Promise<Pick<Lease, "connect" | "release">> {
  const granted = grantedTo(mayActFor(await keys.find(claims.keyId), claims));
  const { user, thread } = claims;
  const sandboxId = claims.provisioned?.sandboxId;
  const lease = await threads.acquireExisting({ user, thread, granted }, use.purpose, use.signal, sandboxId);
  const limit = endInTime({ keys, world }, claims, use.end);
  return {
    async connect(port, options) {
      const connection = await lease.connect(port, options);
      // A lease moves to the next sandbox of its thread after a crash.
      if (sandboxId === undefined || lease.sandbox.id === sandboxId) return connection;
      connection.destroy();
      throw new SandlotError("sandbox_not_found", { id: sandboxId });
    },
    release() {
      limit[Symbol.dispose]();
      return threads.release(lease);
    },
  };
}

function mayActFor(key: ApiKeyInfo | null, { user }: LinkClaims): ApiKeyInfo {
  if (key !== null && (key.scope !== "user" || key.user === user)) return key;
  throw new SandlotError("unauthorized", { problem: "the key that made this link was revoked; ask for a new link" });
}

function endInTime({ keys, world }: Omit<LinkUseParts, "threads">, claims: LinkClaims, end: () => void): Disposable {
  let over = false;
  const finish = () => {
    if (!over) end();
    over = true;
  };
  const check = async () => {
    if (claims.expiresAt <= world.wallMs() || (await keys.find(claims.keyId)) === null) return finish();
    if (!over) timer = next();
  };
  // An unreadable key refuses the next request too.
  const next = () => {
    const leftMs = Math.max(0, claims.expiresAt - world.wallMs());
    return world.timer(Math.min(leftMs, KEY_RECHECK_MS), () => void check().catch(finish), { background: true });
  };
  let timer = next();
  return {
    [Symbol.dispose]() {
      over = true;
      timer.cancel();
    },
  };
}
