/**
 * What starts a sandbox's processes: bubblewrap, or for machines without namespaces nothing but the daemon itself.
 */

import type { DaemonConfig } from "@sandlot/contract";
import type { CreateSpec } from "../../../backend/backend.ts";
import type { Account } from "../../../host/accounts/index.ts";
import type { Egress } from "../../../host/egress/index.ts";
import type { ObjectName } from "../../../host/layout.ts";
import type { LimitGroup } from "../../../host/limits/index.ts";
import type { Binding } from "../../../host/mounts/mounts.ts";

/** What a sandbox is started with, all of it made. */
export interface Prepared {
  readonly name: ObjectName;
  readonly spec: CreateSpec;
  readonly group: LimitGroup;
  readonly egress: Egress | null;
  /** What it runs as; `null` when that is the fleet's own account. */
  readonly account: Account | null;
  /** The workspace, or a blank's whole `/mnt`, then what is configured. */
  readonly bindings: readonly Binding[];
}

export interface StartPlan {
  readonly command: readonly string[];
  /** Of the process itself; the commands' own is in `config`. */
  readonly environment: Readonly<Record<string, string>>;
  readonly config: Pick<DaemonConfig, "environment" | "defaultCwd" | "ownsPidNamespace" | "commandPrefix">;
  /** Who the init is: what bubblewrap tells, or the started process itself. */
  readonly init: "told" | "child";
  readonly seccomp: Uint8Array | null;
  /** Opened for reading, from `FD.firstFile` on. Whoever starts it closes them. */
  readonly files: readonly number[];
  /** Not inherited, but open until it runs. Whoever starts it closes them. */
  readonly held: readonly number[];
}

export interface Engine {
  /** Rejects with `isolation_unavailable`. */
  ready(): Promise<unknown>;
  plan(prepared: Prepared, signal: AbortSignal): Promise<StartPlan>;
}

/** From here on a process of root's fleet has nothing of root any more. */
export function dropTo(account: Account | null): readonly string[] {
  if (account === null) return [];
  return ["setpriv", `--reuid=${account.uid}`, `--regid=${account.gid}`, "--clear-groups", "--no-new-privs", "--"];
}
