/**
 * An engine's reference, in a fleet that is now configured for local: it is named, and the fleet claims nothing about
 * it.
 */

import type { EngineRef } from "@sandlot/contract";
import { afterAll, expect, it } from "vitest";
import { onStage, removeDaemon } from "./local-harness.ts";

afterAll(removeDaemon);

const ENGINES = `${"0123456789ab".repeat(5)}/0123456789abcdef0123-17` as EngineRef;

it("is not ended, and not taken for dead", () =>
  onStage(async ({ backend, signal }) => {
    const problem = expect.stringContaining("`backend` to docker");
    const details = { sandboxId: "0123456789abcdef0123", problem };
    await expect(backend.destroy(ENGINES, signal)).rejects.toMatchObject({ code: "sandbox_unreachable", details });
    expect(await backend.probe(ENGINES, signal)).toBe("unknown");
    // An impossible reference does not exist.
    await expect(backend.destroy("?" as EngineRef, signal)).rejects.toMatchObject({ code: "sandbox_not_found" });
  }));
