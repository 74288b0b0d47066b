/**
 * Starts a sandbox's processes: with bubblewrap, or on machines without namespaces only the daemon itself.
 */

import type { DaemonConfig } from "@sandlot/contract";
import type { CreateSpec } from "../../../backend/backend.ts";
import type { Account } from "../../../host/accounts/index.ts";
import type { Egress } from "../../../host/egress/index.ts";
import type { ObjectName } from "../../../host/layout.ts";
import type { LimitGroup } from "../../../host/limits/index.ts";
import type { Binding } from "../../../host/mounts/mounts.ts";

/** Everything that a sandbox is started with, already made. */
export interface Prepared {
  readonly name: ObjectName;
  readonly spec: CreateSpec;
  readonly group: LimitGroup;
  readonly egress: Egress | null;
  /** The account that it runs as; `null` for the fleet's own account. */
  readonly account: Account | null;
  /** The workspace, or a blank's whole `/mnt`, then configured mounts. */
  readonly bindings: readonly Binding[];
}

export interface StartPlan {
  readonly command: readonly string[];
  /** Of the process itself; the commands' environment is in `config`. */
  readonly environment: Readonly<Record<string, string>>;
  readonly config: Pick<DaemonConfig, "environment" | "defaultCwd" | "ownsPidNamespace" | "commandPrefix">;
  /** Which process is the init: the one that bubblewrap reports (`told`), or the started process itself. */
  readonly init: "told" | "child";
  readonly seccomp: Uint8Array | null;
  /** Opened for reading, from `FD.firstFile` on. The starter closes them. */
  readonly files: readonly number[];
  /** Not inherited, but open until it runs. The starter closes them. */
  readonly held: readonly number[];
}

export interface Engine {
  /** Rejects with `isolation_unavailable`. */
  ready(): Promise<unknown>;
  plan(prepared: Prepared, signal: AbortSignal): Promise<StartPlan>;
}

/** A prefix that drops all of root's rights, for a process of root's fleet. */
export function dropTo(account: Account | null): readonly string[] {
  if (account === null) return [];
  return ["setpriv", `--reuid=${account.uid}`, `--regid=${account.gid}`, "--clear-groups", "--no-new-privs", "--"];
}
