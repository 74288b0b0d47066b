/** Taking checkpoints: what is kept, what is left out, and what is not read again. */

import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync, linkSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { fill, Ground, never } from "./ground.ts";

test("a thread without files has nothing to keep, and an unchanged one writes nothing", async () => {
  await using ground = new Ground();
  expect(await ground.take()).toEqual({ kind: "nothing" });
  const home = await ground.home();
  fill(home);
  const first = await ground.take();
  expect(first).toMatchObject({ kind: "taken", checkpoint: { fileCount: 12, isHead: true, parent: null } });
  const before = readdirSync(join(ground.root, "checkpoints"), { recursive: true }).sort();
  expect(await ground.take()).toMatchObject({ kind: "unchanged" });
  expect(readdirSync(join(ground.root, "checkpoints"), { recursive: true }).sort()).toEqual(before);
  writeFileSync(join(home, "workspace", "new"), "x");
  const second = await ground.take();
  expect(second).toMatchObject({ kind: "taken", checkpoint: { fileCount: 13 } });
  const list = await ground.checkpoints.list(ground.owner());
  expect(list.map(({ isHead }) => isHead)).toEqual([true, false]);
  expect(list[0]?.parent).toBe(list[1]?.id);
});

test("pipes, drafts and caches are left out; pipes are listed", async () => {
  await using ground = new Ground();
  const home = await ground.home();
  fill(home);
  execFileSync("mkfifo", [join(home, "workspace", "pipe")]);
  mkdirSync(join(home, ".home", ".cache"), { recursive: true });
  writeFileSync(join(home, ".home", ".cache", "big"), "x");
  symlinkSync("/etc/passwd", join(home, "workspace", "link"));
  linkSync(join(home, "workspace", "d0", "f0.txt"), join(home, "workspace", "hard"));
  chmodSync(join(home, "workspace", "hard"), 0o000);
  const taken = await ground.take();
  expect(taken).toMatchObject({
    checkpoint: { fileCount: 14, leftOut: { count: 1, paths: ["workspace/pipe"] }, torn: { count: 0, paths: [] } },
  });
  rmSync(join(home, ".home", ".cache"), { recursive: true });
  rmSync(join(home, "workspace", "pipe"));
  // The directories' times have changed.
  expect((await ground.take()).kind).toBe("taken");
});

test("a label makes a checkpoint of an unchanged workspace, and finds it", async () => {
  await using ground = new Ground();
  await ground.home();
  await ground.take();
  const labelled = await ground.taken(ground.owner(), { label: "before the change" });
  expect((await ground.checkpoints.find(ground.owner(), "before the change")).id).toBe(labelled);
  expect((await ground.checkpoints.find(ground.owner(), labelled.slice(0, 6))).id).toBe(labelled);
  await expect(ground.checkpoints.find(ground.owner(), "none")).rejects.toMatchObject({ code: "checkpoint_not_found" });
  const again = await ground.taken(ground.owner(), { requestId: "r1", label: "x" });
  expect(await ground.taken(ground.owner(), { requestId: "r1", label: "x" })).toBe(again);
  await ground.checkpoints.remove(ground.owner(), labelled);
  expect((await ground.checkpoints.find(ground.owner(), again)).parent).not.toBe(labelled);
});

test("a purge takes the checkpoints along, and a collection their bytes", async () => {
  await using ground = new Ground();
  const [one, other] = [ground.owner("t1"), ground.owner("t2")];
  writeFileSync(join(await ground.home(one), "workspace", "secret"), "only in t1");
  writeFileSync(join(await ground.home(other), "workspace", "kept"), "only in t2");
  await ground.take(one);
  await ground.take(other);
  await ground.workspaces.purge(ground.spot(one));
  expect(await ground.checkpoints.list(one)).toEqual([]);
  const problems: string[] = [];
  await ground.checkpoints.collect((problem) => problems.push(problem), never.signal);
  expect(problems).toEqual([]);
  const holding = (text: string) =>
    execFileSync("sh", ["-c", `grep -rl '${text}' "$0" || true`, join(ground.root, "checkpoints")], {
      encoding: "utf8",
    });
  expect(holding("only in t1")).toBe("");
  expect(holding("only in t2")).not.toBe("");
  expect(await ground.checkpoints.usage(other.user)).toMatchObject({ checkpoints: 1 });
});

test("a cancelled take ends its worker, and leaves what the next one repairs", async () => {
  await using ground = new Ground();
  fill(await ground.home());
  const ending = new AbortController();
  const taking = ground.take(ground.owner(), { signal: ending.signal });
  ending.abort(new Error("enough"));
  await expect(taking).rejects.toThrow("enough");
  expect((await ground.take()).kind).toBe("taken");
});

test("a process that closes waits for its workers, and ends by itself", () => {
  const program = new URL("million-main.ts", import.meta.url).pathname;
  const ran = spawnSync(process.execPath, ["--conditions=sandlot-source", program, "--files", "300"], {
    encoding: "utf8",
  });
  expect({ status: ran.status, stderr: ran.stderr }).toEqual({ status: 0, stderr: "" });
  expect(ran.stdout).toContain("every step holds");
});
