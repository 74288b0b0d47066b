/** A sandbox with only some parts, for tests that use only those. Using another part throws. */

import type { Generation, Sandbox, SandboxFiles, SandboxId } from "@sandlot/contract";

export interface SandboxParts extends Partial<Omit<Sandbox, "id" | "generation" | "files">> {
  readonly files?: Partial<SandboxFiles>;
}

export function partialSandbox(id: SandboxId, generation: Generation, parts: SandboxParts = {}): Sandbox {
  const files = orThrow("files", parts.files ?? {}) as SandboxFiles;
  return orThrow("sandbox", { ...parts, id, generation, files }) as Sandbox;
}

/** A missing member is a function that throws and has members that throw, so that every use fails loudly. */
function orThrow(path: string, parts: object): object {
  return new Proxy(parts, {
    get: (target, name) => {
      if (name in target || typeof name === "symbol" || name === "then") return Reflect.get(target, name);
      const missing = `${path}.${name}`;
      return orThrow(missing, () => {
        throw new Error(`${missing} is not part of this sandbox.`);
      });
    },
  });
}
