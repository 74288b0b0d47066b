/** Environments once more, as the fleet of an ordinary user: in a separate process, because an account belongs to one. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { asOrdinaryUser, ORDINARY, ordinaryNode } from "../../support/ordinary-user.ts";

const SUITE = "packages/fleet/test/environments/environments.test.ts";

it.skipIf(process.getuid?.() !== 0)("an ordinary user's fleet has environments", { timeout: 900_000 }, async () => {
  const home = mkdtempSync(join(tmpdir(), "sl-user-"));
  chownSync(home, ORDINARY.uid, ORDINARY.gid);
  chmodSync(home, 0o700);
  try {
    const { PATH = "" } = process.env;
    const vitest = [ordinaryNode(), "node_modules/vitest/vitest.mjs", "run"];
    const [program, ...args] = asOrdinaryUser(...vitest, "--configLoader=native", "--reporter=verbose", SUITE);
    const env = { PATH, HOME: home, TMPDIR: home, NO_COLOR: "1" };
    const child = spawn(program, args, { env, stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (text) => (said += text));
    const [code] = await once(child, "close");
    expect(code, said.slice(-6_000)).toBe(0);
    expect(said).toContain("Python and npm");
    expect(said).toMatch(/Tests\s+(\d+) passed \(\1\)/);
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
});
