/** The tests that need a separate machine, and those of the limits again on another kernel. */
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import shared from "../../vitest.config.ts";

const { projects: _, ...test } = shared.test ?? {};

export default defineConfig({
  ...shared,
  root: fileURLToPath(new URL("../..", import.meta.url)),
  test: {
    ...test,
    include: ["tests/vm/*.vm.ts", "packages/fleet/test/backends/local/**/*.test.ts"],
    // One processor, and slower at every system call.
    maxWorkers: 1,
    testTimeout: 180_000,
    hookTimeout: 180_000,
    retry: 0,
  },
});
