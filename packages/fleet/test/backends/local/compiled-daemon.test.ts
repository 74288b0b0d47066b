/** The daemon in its compiled form: V8 accepts the build's output, and sandboxes run it instead of the text. */

import { spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { filesBeside, SANDBOXD_NODE_FLAGS } from "@sandlot/sandboxd";
import { afterAll, expect, it, onTestFinished } from "vitest";
import { bundle, bundleCompiled } from "../../../../sandboxd/bundle.mjs";
import { onHarness } from "../on-harness.ts";
import { blueprint, openHarness, removeDaemon } from "./local-harness.ts";

afterAll(removeDaemon);

async function compiledDaemon() {
  const directory = mkdtempSync(join(tmpdir(), "sl-compiled-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  chmodSync(directory, 0o755);
  const { outfile } = await bundle(join(directory, "sandboxd.cjs"));
  await bundleCompiled(outfile);
  const files = filesBeside(outfile);
  if (files.compiled === null) throw new Error("nothing was compiled");
  return { ...files, compiled: files.compiled };
}

/** Whether a Node with these flags has to compile the text after all. */
const READ = `
const { readFileSync } = require("node:fs");
const whole = readFileSync(process.argv[1]);
const end = 4 + whole.readUInt32LE(0);
const script = new (require("node:vm").Script)(whole.toString("latin1", 4, end), { cachedData: whole.subarray(end) });
process.stdout.write(String(script.cachedDataRejected));
`;

function isRejected(code: string, flags: readonly string[]): string {
  const { stdout, stderr } = spawnSync(process.execPath, [...flags, "-e", READ, code], { encoding: "utf8" });
  return stdout + stderr;
}

it("is taken by a Node with the daemon's flags, and refused by one with others", async () => {
  const { compiled } = await compiledDaemon();
  expect(isRejected(compiled.code, SANDBOXD_NODE_FLAGS)).toBe("false");
  expect(isRejected(compiled.code, ["--no-opt"])).toBe("true");
});

it("is what a sandbox runs", async () => {
  const daemon = await compiledDaemon();
  // Nothing could run this one.
  writeFileSync(daemon.bundle, "throw new Error('the text was run');");
  await onHarness(await openHarness(), blueprint, async (stage, harness) => {
    const backend = await harness.open({}, { daemon });
    const { target } = await stage.make(stage.newKey(), {}, backend);
    const { sandbox } = await stage.attach(target, backend);
    expect((await sandbox.exec("echo works")).stdout).toBe("works\n");
  });
});
