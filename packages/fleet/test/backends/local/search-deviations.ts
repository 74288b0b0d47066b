/** Where the host's own ripgrep searches, one case of the suite does not apply. */

import { spawnSync } from "node:child_process";
import type { BackendDeviation } from "../../../src/testing/backend-suite.ts";

const WORKSPACE = "/mnt/user-data/workspace";

const withRipgrep: Readonly<Record<string, BackendDeviation>> = {
  "file search: grep refuses what is no expression, and gives up on one that does not end": {
    reason: "ripgrep comes to an end with every expression, so there is none to give up on",
    instead: async (stage) => {
      const { files } = await stage.sandbox();
      await files.write(`${WORKSPACE}/trap`, `${"a".repeat(100)}b`);
      await stage.rejects(files.grep(WORKSPACE, "("), "invalid_pattern");
      await stage.rejects(files.grep(WORKSPACE, "[z-a]"), "invalid_pattern");
      await stage.rejects(files.grep(`${WORKSPACE}/missing`, "x"), "file_not_found");
      stage.expect((await files.grep(WORKSPACE, "^(a+)+$")).matches).toEqual([]);
      stage.expect((await files.grep(WORKSPACE, "^(a+)+b$")).matches.length).toBe(1);
    },
  },
};

const hasRipgrep = spawnSync("/usr/bin/rg", ["--version"]).status === 0;

export const searchDeviations: Readonly<Record<string, BackendDeviation>> = hasRipgrep ? withRipgrep : {};
