/** Environments on local sandboxes, of this process's account. */

import { existsSync } from "node:fs";
import { join } from "node:path";
import { describe } from "vitest";
import { testEnvironments } from "./environments-suite.ts";

const hasBubblewrap = (process.env.PATH ?? "").split(":").some((folder) => existsSync(join(folder, "bwrap")));

describe.skipIf(!hasBubblewrap)("environments (skipped where bubblewrap is not installed)", () =>
  testEnvironments({
    config: { backend: "local" },
    mountOptions: /\bro\b.*\bnosuid\b.*\bnodev\b/,
    hasBlanks: process.getuid?.() === 0,
  }),
);
