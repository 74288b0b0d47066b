/** A test on an open harness: everything it made is removed, and the harness fails it when anything is left. */

import { expect } from "vitest";
import type { Blueprint } from "../../src/backend/blueprint.ts";
import { type BackendHarness, BackendStage } from "../../src/testing/backend-suite/stage.ts";

export async function onHarness<Harness extends BackendHarness>(
  harness: Harness,
  blueprint: Blueprint,
  run: (stage: BackendStage, harness: Harness) => Promise<void>,
): Promise<void> {
  try {
    const stage = new BackendStage(harness, blueprint, expect);
    try {
      await run(stage, harness);
    } finally {
      await stage.clear();
    }
  } finally {
    await harness.dispose();
  }
}
