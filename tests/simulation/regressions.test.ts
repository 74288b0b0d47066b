/** The seeds that once found a bug stay green. */

import { describe, expect, it } from "vitest";
import { FOUND, FOUND_AS_DRAWN } from "./found-seeds.ts";
import { runSeed } from "./run.ts";

describe("seeds that once found something", () => {
  for (const [seed, what] of [...FOUND, ...FOUND_AS_DRAWN]) {
    it(`${seed}: ${what}`, { timeout: 60_000 }, async () => {
      const { violations } = await runSeed(seed);
      expect(violations).toEqual([]);
    });
  }
});
