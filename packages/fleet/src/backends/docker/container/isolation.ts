/**
 * Checks, before anything is made, that the engine can isolate a sandbox as configured. An unknown runtime is refused,
 * because a sandbox that was configured for another kernel must not run on this one. This kernel without a filter of
 * system calls is refused, too.
 */

import { SandlotError } from "@sandlot/contract";
import { closingProblem } from "../../../host/runtime/runtime-directory.ts";
import type { DockerConfig } from "../config.ts";
import type { Engine, EngineFacts } from "../engine/engine.ts";
import { mayHideSockets, mayReadPrograms } from "./transport.ts";

/** Names of shims, which an engine finds without configuration. It refuses a missing one by itself. */
const SHIM = /^(io\.containerd\.|\/)/;

/** Throws `isolation_unavailable`. */
export async function checkRuntime(engine: Engine, runtime: string | null): Promise<void> {
  if (runtime === null || SHIM.test(runtime) || engine.facts.runtimes.includes(runtime)) return;
  // The engine's configuration may have changed since the last request.
  await engine.identify();
  const { runtimes } = engine.facts;
  if (!runtimes.includes(runtime)) throw runtimeUnknown(runtime, runtimes);
}

/** Throws `isolation_unavailable` where containers would share the kernel without a filter of system calls. */
export function checkFilter(facts: Pick<EngineFacts, "hasSeccomp" | "defaultRuntime">, runtime: string | null): void {
  if (facts.hasSeccomp || mayHideSockets(runtime, facts)) return;
  const problem = "the engine filters no system calls, and its containers share its kernel";
  const fix =
    "give the engine a kernel with seccomp and its default profile, or name a runtime with a kernel of its own";
  throw new SandlotError("isolation_unavailable", { backend: "docker", problem, fix });
}

/** Why the daemon of a container is not closed to its commands; `null` where it is. */
export function closingProblemWith(
  { runtime, capabilities }: Pick<DockerConfig, "runtime" | "capabilities">,
  facts: Pick<EngineFacts, "defaultRuntime">,
): string | null {
  if (mayReadPrograms(runtime, facts))
    return `the runtime ${runtime ?? facts.defaultRuntime} may run only what it can read; gVisor closes memory by itself`;
  if (capabilities.length > 0) return `docker.capabilities gives commands ${capabilities.join(", ")}`;
  return closingProblem();
}

export function runtimeUnknown(runtime: string, known: readonly string[], cause?: unknown): SandlotError {
  const list = known.length === 0 ? "" : `; it has ${[...known].sort().join(", ")}`;
  const problem = `the engine has no runtime ${runtime}${list}`;
  const fix = `register ${runtime} with the engine (\`runtimes\` in its daemon.json), or name another one in the blueprint or in docker.runtime`;
  return new SandlotError("isolation_unavailable", { backend: "docker", problem, fix }, { cause });
}
