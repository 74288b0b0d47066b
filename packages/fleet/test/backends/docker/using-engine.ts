/** The engine of a test file: held while its tests run, with everything they need on it. */

import { afterAll, beforeAll, it, vi } from "vitest";
import { removeDaemon, STOPPING_MS, type TestEngine } from "./docker-harness.ts";

/** Declares tests on an engine, and releases it afterwards. Without an engine, says why. */
export function usingEngine(
  name: string,
  held: TestEngine | { readonly reason: string },
  body: (engine: TestEngine) => void,
): void {
  if ("reason" in held) {
    it(name, (context) => context.skip(held.reason));
    return;
  }
  afterAll(async () => {
    await removeDaemon();
    await held.release();
  }, STOPPING_MS);
  body(held);
}

/** An engine network for the tests of a file, on which containers cannot reach each other. */
export function withNetwork({ docker }: TestEngine, name: string): void {
  beforeAll(async () => {
    const Options = { "com.docker.network.bridge.enable_icc": "false" };
    await docker.createNetwork({ Name: name, Driver: "bridge", Options });
  });
  // Hooks run in reverse order: before the engine is released.
  afterAll(() => removed(() => docker.getNetwork(name).remove()), STOPPING_MS);
}

/**
 * Removes an image or a network. A container in removal may still be using it: the engine removes the container
 * asynchronously, and refuses until then.
 */
export async function removed(remove: () => Promise<unknown>): Promise<void> {
  await vi.waitFor(remove, { timeout: STOPPING_MS / 2, interval: 250 });
}
