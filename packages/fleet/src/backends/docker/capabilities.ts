/** What containers of an engine can do with these settings. */

import { SandlotError } from "@sandlot/contract";
import type { Capability } from "../../backend/backend.ts";
import type { LateBinding } from "../../host/workspaces/late-binding.ts";
import { closingProblemWith } from "./container/isolation.ts";
import { publishes, runtimeOf } from "./container/transport.ts";
import { supportsEgress } from "./egress.ts";
import type { Engine } from "./engine/engine.ts";
import type { DockerSettings } from "./settings.ts";

/** Whether any configured runtime supports a network. The create checks the runtime that it uses. */
export function canHaveNetwork({ facts }: Engine, { docker, blueprints }: DockerSettings): boolean {
  const runtimes = Object.values(blueprints).map(({ blueprint }) => runtimeOf(blueprint, docker));
  return (
    (publishes(docker) && !facts.relaysSockets) ||
    [docker.runtime, ...runtimes].some((runtime) => supportsEgress(facts, { ...docker, runtime }))
  );
}

export function capabilitiesOf(
  { facts }: Engine,
  { lateBinding, network, ownAccounts }: Readonly<Record<"lateBinding" | "network" | "ownAccounts", boolean>>,
  { docker, speaksAio }: Pick<DockerSettings, "docker" | "speaksAio">,
): ReadonlySet<Capability> {
  const daemons: readonly Capability[] = speaksAio ? [] : ["sessions", "terminal", "watch", "preview"];
  const capabilities = new Set<Capability>([
    ...(["checkpoints", "environments", "image", "runtime", "limits", "mounts"] as const),
    ...daemons,
  ]);
  if (facts.canPause && !speaksAio) capabilities.add("pause");
  if (lateBinding) capabilities.add("late-binding");
  if (network) capabilities.add("network");
  if (!speaksAio && closingProblemWith(docker, facts) === null) capabilities.add("closed-daemon");
  if (ownAccounts) capabilities.add("own-account");
  return capabilities;
}

/** On another host a renamed directory may appear late, or under its old name. */
export function lateBindingProblem({ facts }: Engine, workspaces: { probeLateBinding(): LateBinding }): string | null {
  if (!facts.isOnThisHost) return "the engine is on another host, where a moved directory may appear late";
  const late = workspaces.probeLateBinding();
  return late.possible ? null : late.reason;
}

export function missingCapability(capability: Capability, neededBy: string): SandlotError {
  return new SandlotError("capability_missing", { backend: "docker", capability, neededBy });
}
