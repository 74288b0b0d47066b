/** The workspaces of a configuration: none, one shared claim, or a claim for each thread. */

import { SandlotError } from "@sandlot/contract";
import type { World } from "../../../world/world.ts";
import type { Api } from "../api/api.ts";
import type { PodSecrets } from "../pod/pod-secret.ts";
import type { KubernetesSettings } from "../settings.ts";
import { ClaimWorkspaces } from "./claim-workspaces.ts";
import { NoWorkspaces } from "./no-workspaces.ts";
import type { PodWorkspaces } from "./pod-workspaces.ts";
import { SharedWorkspaces } from "./shared-workspaces.ts";
import { ThreadClaims } from "./thread-claims.ts";

export interface WorkspacesContext {
  readonly world: World;
  /** Fires when the backend closes. */
  readonly signal: AbortSignal;
  readonly onProblem: (problem: string) => void;
}

export function podWorkspaces(
  api: Api,
  { kubernetes, fleetId, blueprints }: KubernetesSettings,
  secrets: PodSecrets,
  { world, signal, onProblem }: WorkspacesContext,
): PodWorkspaces | NoWorkspaces {
  const { mode, claim, root, storageClass, sizeBytes } = kubernetes.workspaces;
  if (mode === "none") return new NoWorkspaces(secrets);
  if (mode === "per-thread") {
    const shape = { storageClass: storageClass ?? null, sizeBytes, fleetId };
    return new ClaimWorkspaces({ api: new ThreadClaims(api, shape, signal), fleet: fleetId, world });
  }
  if (claim === undefined) throw incomplete("claim", "names the claim that all threads share");
  if (root === undefined) throw incomplete("root", "is where this process mounts that claim");
  return new SharedWorkspaces({
    ...{ claimName: claim, mountPath: root, folder: fleetId, world, onProblem },
    hasLateBinding: true,
    isBudgeted: Object.values(blueprints).some(({ blueprint }) => blueprint.limits.diskBytes !== undefined),
    account: { uid: kubernetes.uid, gid: kubernetes.gid },
  });
}

function incomplete(key: string, what: string): SandlotError {
  const problem = `is missing: with mode claim it ${what}`;
  return new SandlotError("config_invalid", { path: `kubernetes.workspaces.${key}`, problem });
}
