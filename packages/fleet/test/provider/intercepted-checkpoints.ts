/** Intercepts calls of an instance's checkpoints. */

import type { Checkpoints } from "../../src/backend/checkpoints.ts";
import type { Instance } from "../support/stage.ts";

export function intercepted(instance: Pick<Instance, "backend">, calls: Partial<Checkpoints>): void {
  const { checkpoints } = instance.backend.proxy;
  Object.defineProperty(instance.backend.proxy, "checkpoints", { value: { ...checkpoints, ...calls } });
}
