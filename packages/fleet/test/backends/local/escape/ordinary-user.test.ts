/** The escape list once more, with the fleet of an ordinary user: the whole test restarts under another account. */

import { spawn } from "node:child_process";
import { chownSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { asOrdinaryUser, ORDINARY, ordinaryNode } from "../../../support/ordinary-user.ts";

it("holds for an ordinary user's fleet", { timeout: 120_000 }, async (context) => {
  if (process.getuid?.() !== 0) return context.skip("this is an ordinary user's fleet already");
  const home = mkdtempSync(join(tmpdir(), "sl-user-"));
  chownSync(home, ORDINARY.uid, ORDINARY.gid);
  try {
    // The configuration is loaded directly: an ordinary user cannot write a translated copy beside it.
    const args = [
      "run",
      "--configLoader",
      "runner",
      "--no-color",
      ...["escape", "closed-daemon"].map((name) => `packages/fleet/test/backends/local/escape/${name}.test.ts`),
    ];
    const env = { PATH: process.env.PATH, HOME: home, TMPDIR: home, NO_COLOR: "1" };
    const [program, ...more] = asOrdinaryUser(ordinaryNode(), "node_modules/vitest/vitest.mjs", ...args);
    const child = spawn(program, more, { env, stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text: string) => {
        said += text;
      });
    const code = await new Promise((resolve) => child.once("close", resolve));
    console.log(/^\s*Tests .*$/m.exec(said)?.[0].trim());
    expect(code, said).toBe(0);
    expect(said).toMatch(/Tests\s+\d+ passed/);
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
});
