/** What a checkpoint never keeps is its own: other settings, of a blueprint or of later, neither lose nor bring it back. */

import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { Ground, never } from "./ground.ts";

const MODULES = ["workspace/node_modules"] as const;
const HOW = { texts: false, maxChanges: 100, ...never };

async function opened() {
  const ground = new Ground();
  onTestFinished(() => ground[Symbol.asyncDispose]());
  const owner = ground.owner();
  const path = await ground.home(owner);
  mkdirSync(join(path, ...MODULES, "deep"), { recursive: true });
  const [file, module] = [join(path, "workspace", "file"), join(path, ...MODULES, "deep", "module")];
  const write = (text: string) => {
    for (const name of [file, module]) writeFileSync(name, text);
  };
  write("one");
  return { ground, owner, path, file, module, write };
}

test("a restore leaves alone what the target, or the present, never keeps", async () => {
  for (const [first, second] of [
    [MODULES, []],
    [[], MODULES],
  ] as const) {
    const { ground, owner, file, module, write } = await opened();
    const target = await ground.taken(owner, { leftOut: first });
    write("two");
    await ground.taken(owner, { leftOut: second });
    await ground.restore(target, owner);
    expect([readFileSync(file, "utf8"), readFileSync(module, "utf8")]).toEqual(["one", "two"]);
    const { changes } = await ground.checkpoints.diff(owner, { from: target, to: null }, HOW);
    expect(changes.filter(({ kind }) => kind === "file")).toEqual([]);
  }
});

test("the next checkpoint without settings goes on with those of the one before", async () => {
  const { ground, owner, path, write } = await opened();
  const first = await ground.taken(owner, { leftOut: MODULES });
  write("two");
  const second = await ground.taken(owner);
  const { changes } = await ground.checkpoints.diff(owner, { from: first, to: second }, HOW);
  expect(changes.map((change) => change.path)).toEqual(["workspace/file"]);
  const to = ground.owner("fork");
  await ground.checkpoints.seed({ kind: "checkpoint", owner, checkpoint: second }, to, null, never);
  expect(existsSync(join(ground.path(to), "workspace", "file"))).toBe(true);
  expect(existsSync(join(ground.path(to), ...MODULES))).toBe(false);
  expect(existsSync(join(path, ...MODULES))).toBe(true);
});

test("a fork has what its source keeps and others leave out", async () => {
  const { ground, owner, path } = await opened();
  mkdirSync(join(path, ".home", ".cache"), { recursive: true });
  writeFileSync(join(path, ".home", ".cache", "kept"), "kept");
  const all = await ground.taken(owner, { leftOut: [] });
  const to = ground.owner("fork");
  await ground.checkpoints.seed({ kind: "checkpoint", owner, checkpoint: all }, to, null, never);
  expect(readFileSync(join(ground.path(to), ".home", ".cache", "kept"), "utf8")).toBe("kept");
});
