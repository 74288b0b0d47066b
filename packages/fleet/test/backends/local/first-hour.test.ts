/** The first commands and scripts of a newcomer, in real local sandboxes. */

import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Fleet, openFleet } from "../../../src/index.ts";

const hasBubblewrap = (process.env.PATH ?? "").split(":").some((folder) => existsSync(join(folder, "bwrap")));

describe.skipIf(!hasBubblewrap)("the first hour (skipped where bubblewrap is not installed)", () => {
  const home = mkdtempSync(join(tmpdir(), "slf-"));
  let fleet: Fleet;

  beforeAll(async () => {
    fleet = await openFleet({ home, backend: "local" });
  });
  afterAll(async () => {
    await fleet.close({ destroy: true });
    rmSync(home, { recursive: true, force: true });
  });

  it("programs that an ordinary user installs go to its home, and are found there", async () => {
    await using lease = await fleet.acquire({ thread: "t1" });
    const make =
      "mkdir -p ~/.local/bin && printf '#!/bin/sh\\necho found' > ~/.local/bin/own && chmod +x ~/.local/bin/own";
    const shown = 'own; echo "$NPM_CONFIG_PREFIX $PIP_BREAK_SYSTEM_PACKAGES"';
    const { stdout } = await lease.sandbox.exec(`${make}; ${shown}`);
    expect(stdout).toBe("found\n/mnt/user-data/.home/.local 1\n");
  });

  it("without a network, commands know it and package managers do not try again", async () => {
    await using lease = await fleet.acquire({ thread: "t1" });
    const { stdout } = await lease.sandbox.exec('echo "$SANDLOT_NETWORK $npm_config_fetch_retries $PIP_RETRIES"');
    expect(stdout).toBe("none 0 0\n");
    const lookup = await lease.sandbox.exec("getent hosts example.org", { timeoutMs: 10_000 });
    expect(lookup).toMatchObject({ status: "completed", exitCode: 2 });
    expect(lookup.durationMs).toBeLessThan(3_000);
    expect(fleet.about()).toMatchObject({ network: { mode: "none", allow: [] } });
    expect(fleet.about().programs).toContain("perl");
  });

  it("relative paths of files are below the workspace", async () => {
    await using lease = await fleet.acquire({ thread: "t1" });
    const { files } = lease.sandbox;
    await files.write("sub/x.txt", "content");
    expect(await files.readText("/mnt/user-data/workspace/sub/x.txt")).toBe("content");
    expect((await files.list("sub")).entries.map(({ path }) => path)).toEqual(["/mnt/user-data/workspace/sub/x.txt"]);
    await expect(files.read("")).rejects.toMatchObject({ code: "invalid_path" });
  });

  it("a script that forgets to release its lease ends all the same", async () => {
    const script = join(home, "forgets.mjs");
    const library = new URL("../../../src/index.ts", import.meta.url).href;
    writeFileSync(
      script,
      `import { openFleet } from ${JSON.stringify(library)};
const fleet = await openFleet({ home: ${JSON.stringify(home)}, backend: "local" });
const lease = await fleet.acquire({ thread: "forgotten" });
console.log((await lease.sandbox.exec("echo done")).stdout);
`,
    );
    const args = ["--conditions=sandlot-source", script];
    const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 30_000 });
    expect(stdout).toContain("done");
  }, 40_000);
});
