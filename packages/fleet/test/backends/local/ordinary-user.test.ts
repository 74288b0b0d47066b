/**
 * The suite once more, as the fleet of an ordinary user: in a process of its own, because an account is a process's.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { isRoot } from "./local-harness.ts";

/** Nobody's. */
const ORDINARY = 59_998;
const ROOT = new URL("../../../../../", import.meta.url).pathname;
const SUITE = "packages/fleet/test/backends/local/suite.test.ts";

it.skipIf(!isRoot)("an ordinary user's fleet passes the suite", { timeout: 900_000 }, async () => {
  const home = mkdtempSync(join(tmpdir(), "sl-user-"));
  chownSync(home, ORDINARY, ORDINARY);
  chmodSync(home, 0o700);
  try {
    const { PATH = "" } = process.env;
    const vitest = join(ROOT, "node_modules/vitest/vitest.mjs");
    const args = [vitest, "run", "--configLoader=native", "--reporter=dot", SUITE];
    const child = spawn(process.execPath, args, {
      uid: ORDINARY,
      gid: ORDINARY,
      cwd: ROOT,
      env: { PATH, HOME: home, TMPDIR: home, NO_COLOR: "1" },
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
