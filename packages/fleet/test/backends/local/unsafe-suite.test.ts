/** `isolation: unsafe-process` passes the suite of every backend, as far as possible without namespaces. */

import { afterAll, expect, it } from "vitest";
import { describeBackend } from "../../../src/testing/backend-suite.ts";
import { describeGroups, deviationsIn } from "../suite-groups.ts";
import { blueprint, openHarness, removeDaemon } from "./local-harness.ts";
import { searchDeviations } from "./search-deviations.ts";

/** Paths, accounts and processes without namespaces. */
const GROUPS = ["lifecycle", "workspaces", "liveness", "exec", "exec ending", "files", "file search", "terminals"];

afterAll(removeDaemon);

describeBackend({
  name: "local, unsafe-process",
  tools: { describe: describeGroups(GROUPS), it, expect },
  blueprint,
  open: () => openHarness("unsafe-process"),
  deviations: deviationsIn(GROUPS, {
    ...searchDeviations,
    "terminals: without a command it is a shell in the workspace": {
      reason: "a terminal shows what the host shows: its output is not rewritten as it comes",
      instead: async (stage) => {
        const { terminals } = await stage.sandbox();
        const terminal = await terminals.open({ columns: 200, rows: 20 });
        terminal.write("pwd; exit\n");
        let shown = "";
        for await (const { bytes } of terminal.output) shown += Buffer.from(bytes).toString();
        expect(shown).toMatch(/\/homes\/[0-9a-f]{32}\/user-data\/workspace/);
      },
    },
  }),
});
