/** The `memory` backend in the registry. */

import type { BackendEntry } from "../../backend/entry.ts";

export const MEMORY = {
  name: "memory",
  about: "inside this process, without isolation, for tests",
  configSchema: null,
  endsWithProcess: true,
  settings: () => null,
  blueprintKey: () => "memory",
  canLimit: () => false,
  experimental: () => [],
  async open({ fleet: { fleetId, home }, world }) {
    const { createMemoryBackend } = await import("./backend.ts");
    const { MemoryEngine } = await import("./engine.ts");
    return createMemoryBackend({ fleetId, engine: MemoryEngine.shared(home), world });
  },
  doctor: async () => [
    { name: "backend", status: "warn", detail: "the memory backend isolates nothing; it is for tests" },
  ],
} as const satisfies BackendEntry<unknown, null>;
