/**
 * `pip`, `npm`, `cargo`, `go`, `uv`, `pipx` and `venv` in local sandboxes, as they are typed. In this suite because their
 * programs are large.
 */

import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, it } from "vitest";
import { INSTALLERS, installsAndRuns, pipInstall } from "../backends/installers.ts";
import { onStage, removeDaemon } from "../backends/local/local-harness.ts";

const folder = mkdtempSync(join(tmpdir(), "sl-wheels-"));
/** `uv`, from the package index by the ordinary client; `null` where that cannot be reached. */
let uv: string | null = null;

beforeAll(() => {
  try {
    const flags = ["--quiet", "--no-deps", "--only-binary=:all:", "--timeout=15", "--retries=1", "--dest", folder];
    execFileSync("pip3", ["download", ...flags, "uv==0.9.7"], { stdio: "pipe", timeout: 90_000 });
    const [file] = readdirSync(folder);
    uv = file === undefined ? null : join(folder, file);
  } catch (error) {
    console.log(`uv cannot be fetched: ${String(error)}`);
  }
}, 120_000);
afterAll(() => rmSync(folder, { recursive: true, force: true }));
afterAll(removeDaemon);

describe("in a local sandbox, without root, and in the next one after it was killed", () => {
  it.for(INSTALLERS)("$name", async (installer, context) => {
    await onStage((stage) =>
      installsAndRuns(stage, installer, context, async (sandbox) => {
        if (installer.needs.includes("uv") && uv !== null) await pipInstall(sandbox, uv);
      }),
    );
  });
});
