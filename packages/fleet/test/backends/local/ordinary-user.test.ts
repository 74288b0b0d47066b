/**
 * The suite once more, as the fleet of an ordinary user: in a separate process, because an account belongs to a
 * process.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { asOrdinaryUser, ORDINARY, ordinaryNode } from "../../support/ordinary-user.ts";
import { isRoot } from "./local-harness.ts";

/** The differences of an account with few rights. */
const GROUPS = "lifecycle,attaching,workspaces,home,checkpoints,liveness,exec ending,files,ports";
const SUITE = "packages/fleet/test/backends/local/suite.test.ts";

it.skipIf(!isRoot)("an ordinary user's fleet passes the suite", { timeout: 900_000 }, async () => {
  const home = mkdtempSync(join(tmpdir(), "sl-user-"));
  chownSync(home, ORDINARY.uid, ORDINARY.gid);
  chmodSync(home, 0o700);
  try {
    const { PATH = "" } = process.env;
    const vitest = [ordinaryNode(), "node_modules/vitest/vitest.mjs", "run"];
    const [program, ...args] = asOrdinaryUser(...vitest, "--configLoader=native", "--reporter=dot", SUITE);
    const child = spawn(program, args, {
      env: { PATH, HOME: home, TMPDIR: home, NO_COLOR: "1", SANDLOT_TEST_GROUPS: GROUPS },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let said = "";
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (text) => (said += text));
    const [code] = await once(child, "close");
    console.log(said.slice(-600));
    expect(code, said.slice(-6_000)).toBe(0);
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
});
