/**
 * Three projects, told apart by folder: `engines` for what takes a container engine, a browser or a stand-in of another
 * server, `cluster` for what takes a Kubernetes cluster, `test` for everything else. `npx vitest run <path>` finds a file
 * in any of them.
 *
 * Tests run from source: the condition `sandlot-source` leads every import of a package to its `src`, in Vite's resolver
 * and in Node's own (for the files that Vite leaves to Node, and for processes that a test starts with `fork`).
 */
import { defineConfig } from "vitest/config";

const conditions = ["sandlot-source", "node", "module", "development|production"];

const TESTS = ["packages/*/test/**/*.test.ts", "tests/**/*.test.ts"];
const ENGINES = ["packages/fleet/test/backends/docker/**/*.test.ts", "packages/*/test/engines/**/*.test.ts"];
const CLUSTER = ["packages/fleet/test/engines/kubernetes/**/*.test.ts"];

/** No test takes this long on a machine that still works: the limit finds hangs, and says nothing of speed. */
const HANG_MS = 120_000;

export default defineConfig({
  resolve: { conditions },
  ssr: { resolve: { conditions, externalConditions: ["sandlot-source", "node"] } },
  test: {
    projects: [
      { extends: true, test: { name: "test", include: TESTS, exclude: ENGINES } },
      { extends: true, test: { name: "engines", include: ENGINES, exclude: CLUSTER } },
      { extends: true, test: { name: "cluster", include: CLUSTER } },
    ],
    pool: "forks",
    execArgv: ["--conditions=sandlot-source"],
    // Most tests wait for processes, so three at a time do not get in each other's way, even on two processors.
    maxWorkers: 3,
    // Engines and daemons share the machine with whatever else runs on it; what fails twice is broken.
    retry: process.env.CI === "true" ? 1 : 0,
    testTimeout: HANG_MS,
    hookTimeout: HANG_MS,
    teardownTimeout: HANG_MS,
    // What is waited for comes when the machine gets to it; the default of a second is a limit on its speed.
    expect: { poll: { timeout: HANG_MS / 2 } },
    // A test run that found no tests proves nothing.
    passWithNoTests: false,
  },
});
