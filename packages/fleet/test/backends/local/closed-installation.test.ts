/**
 * An installation that the sandbox account cannot read, such as a checkout in root's home: sandboxes work with either
 * isolation, and the installation stays closed.
 */

import { chmodSync, copyFileSync, linkSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { filesBeside } from "@sandlot/sandboxd";
import { afterAll, expect, it, onTestFinished } from "vitest";
import { onHarness } from "../on-harness.ts";
import { blueprint, daemonFiles, isRoot, openHarness, removeDaemon } from "./local-harness.ts";

afterAll(removeDaemon);

/** Node and the daemon in a directory that only we may enter, with a name that is hard to handle. */
async function closedInstallation() {
  const closed = mkdtempSync(join(tmpdir(), "sl-closed é "));
  onTestFinished(() => rmSync(closed, { recursive: true, force: true }));
  const inside = join(closed, "some 'place'");
  mkdirSync(inside);
  const node = join(inside, "node");
  try {
    linkSync(process.execPath, node);
  } catch {
    copyFileSync(process.execPath, node);
  }
  const { bundle } = await daemonFiles();
  for (const name of readdirSync(dirname(bundle))) copyFileSync(join(dirname(bundle), name), join(inside, name));
  return { closed, nodePath: node, daemon: filesBeside(join(inside, basename(bundle))) };
}

it.for(["bubblewrap", "unsafe-process"] as const)("has sandboxes that work, with %s", async (isolation, context) => {
  if (!isRoot) return context.skip("only a root fleet runs sandboxes as another account");
  const { closed, nodePath, daemon } = await closedInstallation();
  chmodSync(closed, 0o700);
  await onHarness(await openHarness(isolation), blueprint, async (stage, harness) => {
    const backend = await harness.open({}, { nodePath, daemon });
    for (const round of ["first", "second"]) {
      const made = await stage.make(stage.newKey(), {}, backend);
      const { sandbox } = await stage.attach(made.target, backend);
      expect((await sandbox.exec(`echo ${round}; id -u`)).stdout).toMatch(new RegExp(`^${round}\\n(1000|59999)\\n$`));
      const terminal = await sandbox.terminals.open({ columns: 80, rows: 24, command: ["/bin/echo", "shown"] });
      let shown = "";
      for await (const { bytes } of terminal.output) shown += Buffer.from(bytes).toString();
      expect(shown).toContain("shown");
    }
    expect(statSync(closed).mode & 0o777).toBe(0o700);
  });
});
