/** A backend that can have no environment refuses a setup, instead of ignoring it. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import type { FleetConfig } from "../../src/config/fleet-config.ts";
import { openFleet } from "../../src/open-fleet.ts";

it.for<Partial<FleetConfig>>([
  { backend: "memory", store: { type: "memory" } },
  { backend: "local", local: { isolation: "unsafe-process" } },
])("%o", async (config) => {
  const home = mkdtempSync(join(tmpdir(), "sle-"));
  try {
    const opening = openFleet({ ...config, home, blueprints: { science: { setup: { script: "true" } } } });
    await expect(opening).rejects.toMatchObject({
      code: "capability_missing",
      details: { capability: "environments", neededBy: "blueprint science" },
    });
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
});
