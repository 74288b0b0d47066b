/** The test whether owners of files can be mapped. */

import { mkdirSync, mkdtempSync, readdirSync, rmSync, utimesSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished, type TestContext } from "vitest";
import { HostMounts, IdMapping } from "../../../src/host/accounts/index.ts";
import { systemWorld } from "../../../src/world/system-world.ts";

const OWNER = { uid: 59_999, gid: 59_999 };
const ACCOUNT = { uid: 1_899_200_001, gid: 1_899_200_001 };

/** A directory whose files can be mapped. */
async function ground(context: TestContext) {
  const directory = mkdtempSync(join(tmpdir(), "sl-mapping-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const mapping = new IdMapping();
  onTestFinished(() => mapping.close());
  const problem = await mapping.problem(directory);
  if (problem !== null) context.skip(problem);
  return { directory, mapping };
}

describe("mapped mounts on the host", () => {
  it("of a fleet in a container that was started again are swept once they are old", async (context) => {
    const { directory, mapping } = await ground(context);
    const world = systemWorld();
    const identity = { ...world.identity, pidNamespace: "pid:[1]" };
    const killed = new HostMounts(directory, mapping, { ...world, identity });
    const shown = join(directory, "shown");
    mkdirSync(shown);
    for (const name of ["old", "recent"]) await killed.show(name, [{ path: shown, owner: OWNER }], ACCOUNT);
    onTestFinished(() => killed.hide("recent"));
    onTestFinished(() => killed.hide("old"));
    utimesSync(join(directory, "mapped/old/maker"), 1, 1);
    new HostMounts(directory, mapping, world).sweep();
    expect(readdirSync(join(directory, "mapped"))).toEqual(["recent"]);
  });
});

describe("obstacles to mapping owners", () => {
  it("is looked at again when it may be over", async (context) => {
    const { directory, mapping } = await ground(context);
    const path = join(directory, "later");
    expect(await mapping.problem(path)).toContain("ENOENT");
    mkdirSync(path);
    expect(await mapping.problem(path)).toBeNull();
  });

  it("is not that another process has a mapped mount below the fleet's directory", async (context) => {
    const { directory, mapping } = await ground(context);
    const root = join(directory, "fleet");
    const shown = join(directory, "shown");
    for (const path of [root, shown]) mkdirSync(path);
    const mounts = new HostMounts(root, mapping, systemWorld());
    onTestFinished(() => mounts.hide("other"));
    await mounts.show("other", [{ path: shown, owner: OWNER }], ACCOUNT);
    expect(await mapping.problem(root)).toContain("EPERM");
    expect(await mapping.problem(root, "top")).toBeNull();
    mounts.hide("other");
    expect(await mapping.problem(root)).toBeNull();
  });
});
