/** What sandboxes of this host can do. */

import type { Capability } from "../../backend/backend.ts";
import { closingProblem } from "../../host/runtime/runtime-directory.ts";

export function capabilitiesOf(
  isUnsafe: boolean,
  { lateBinding, canPause, ownAccounts }: Readonly<Record<"lateBinding" | "canPause" | "ownAccounts", boolean>>,
): ReadonlySet<Capability> {
  const always: Capability[] = ["checkpoints", "mounts", "sessions", "terminal", "watch", "preview"];
  // Without namespaces nothing enforces a network policy or a slot.
  if (isUnsafe) return new Set(always);
  const some: Capability[] = [
    ...(closingProblem() === null ? ["closed-daemon" as const] : []),
    ...(lateBinding ? ["late-binding" as const] : []),
    ...(canPause ? ["pause" as const] : []),
    ...(ownAccounts ? ["own-account" as const] : []),
  ];
  return new Set([...always, "environments", "limits", "network", ...some]);
}
