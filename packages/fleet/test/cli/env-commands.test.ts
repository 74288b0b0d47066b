/** `sandlot env`: an environment from its build to its removal, on real local sandboxes. */

import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { openFleet } from "../../src/open-fleet.ts";
import { runHere } from "./run-here.ts";

const hasBubblewrap = (process.env.PATH ?? "").split(":").some((folder) => existsSync(join(folder, "bwrap")));
const home = mkdtempSync(join(tmpdir(), "sle-"));
const environment = { SANDLOT_HOME: home };
const setups = {
  science: { setup: { script: "echo collecting; head -c 3M /dev/urandom > /opt/env/data" } },
  broken: { setup: { script: "echo collecting; echo no such package >&2; exit 3" } },
};

describe.skipIf(!hasBubblewrap)("sandlot env (skipped where bubblewrap is not installed)", () => {
  afterAll(() => rmSync(home, { recursive: true, force: true }));
  const env = (...args: readonly string[]) => runHere(["env", ...args], environment);

  it("says what makes one where there is none", async () => {
    expect((await env("ls")).stdout).toBe("There is no environment. A blueprint's `setup` makes one.\n");
    const { code, stderr } = await env("build");
    expect(code).not.toBe(0);
    expect(stderr).toContain("there is no blueprint with a setup");
  });

  it("builds, lists, inspects and removes, but not while a sandbox has it mounted", async () => {
    writeFileSync(join(home, "sandlot.yaml"), JSON.stringify({ pool: {}, blueprints: { science: setups.science } }));
    const built = await env("build");
    expect(built).toMatchObject({ code: 0, stdout: expect.stringMatching(/^science@[0-9a-f]{16} is ready\.\n$/) });
    const id = built.stdout.split(" ")[0] ?? "";
    const { stdout: listed } = await env("ls");
    expect(listed).toMatch(new RegExp(`^ENVIRONMENT +STATE +SIZE +SANDBOXES\n${id} +ready +4 MiB +0\n$`));
    const { stdout: inspected } = await env("inspect", "science@");
    expect(inspected).toMatch(new RegExp(`^${id}: ready\n  1 files, 4 MiB, built in \\d+ s\n\ncollecting\n$`));

    const fleet = await openFleet({ home, backend: "local", blueprints: { science: setups.science } });
    const lease = await fleet.acquire({ thread: "t", blueprint: "science" });
    expect((await env("ls")).stdout).toMatch(/ready +4 MiB +1\n/);
    const refused = await env("rm", id);
    expect(refused.code).not.toBe(0);
    expect(refused.stderr).toContain("is mounted in 1 sandboxes");
    expect((await lease.sandbox.exec("wc -c < /opt/env/data")).stdout.trim()).toBe(String(3 * 1_024 ** 2));
    await lease.release();
    await fleet.destroy({ thread: "t" }, { purge: true });
    await fleet.close({ destroy: true });

    expect(await env("rm", id)).toMatchObject({ code: 0, stdout: `${id} is removed.\n` });
    expect(existsSync(join(home, "environments", id))).toBe(false);
    expect((await env("rm", id)).stderr).toContain("`sandlot env ls` lists them");
  });

  it("keeps the log of a failed build, and builds it again when it is told", async () => {
    writeFileSync(join(home, "sandlot.yaml"), JSON.stringify({ pool: {}, blueprints: { broken: setups.broken } }));
    for (const _ of [1, 2]) {
      const { code, stderr } = await env("build", "broken");
      expect(code).not.toBe(0);
      expect(stderr).toContain("no such package");
    }
    expect((await env("ls")).stdout).toMatch(/broken@[0-9a-f]{16} +failed +0\n/);
    const { stdout } = await env("inspect", "broken@");
    expect(stdout).toMatch(/: failed\n {2}the script ended with exit code 3/);
    expect(stdout).toContain("collecting\nno such package\n");
    expect((await env("build", "science")).stderr).toContain("no blueprint science with a setup");
  });
});
