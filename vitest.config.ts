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
    testTimeout: 30_000,
    hookTimeout: 30_000,
    teardownTimeout: 30_000,
    // A test run that found no tests proves nothing.
    passWithNoTests: false,
  },
});
