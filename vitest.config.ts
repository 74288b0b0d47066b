/**
 * Tests run from source: the condition `sandlot-source` leads every import of a package to its `src`, in Vite's resolver
 * and in Node's own (for the files that Vite leaves to Node, and for processes that a test starts with `fork`).
 */
import { defineConfig } from "vitest/config";

const conditions = ["sandlot-source", "node", "module", "development|production"];

export default defineConfig({
  resolve: { conditions },
  ssr: { resolve: { conditions, externalConditions: ["sandlot-source", "node"] } },
  test: {
    include: ["packages/*/test/**/*.test.ts", "tests/**/*.test.ts"],
    pool: "forks",
    execArgv: ["--conditions=sandlot-source"],
    // Most tests wait for processes, so three at a time do not get in each other's way, even on two processors.
    maxWorkers: 3,
    // Engines and daemons share the machine with whatever else runs on it; what fails twice is broken.
    retry: process.env.CI === "true" ? 1 : 0,
    testTimeout: 30_000,
    hookTimeout: 30_000,
    teardownTimeout: 30_000,
    // What is waited for comes when the machine gets to it; the default of a second is a limit on its speed.
    expect: { poll: { timeout: 15_000 } },
    // A test run that found no tests proves nothing.
    passWithNoTests: false,
  },
});
