/** A workspace that is changed on purpose while it is walked, and disks that are full. */

import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { BlueprintHash, Token } from "@sandlot/contract";
import { expect, test } from "vitest";
import { restore } from "../../../src/host/checkpoints/restore/restore.ts";
import { seam } from "../../../src/host/checkpoints/store/calls.ts";
import { type TakeRequest, take } from "../../../src/host/checkpoints/take/take.ts";
import { contextAt } from "./context.ts";
import { describeTree, fill, Ground, never } from "./ground.ts";

const plain: TakeRequest = {
  ...({ cause: "requested", generation: null, environment: null, writers: "none" } as const),
  ...{ label: null, leftOut: null, verify: false, requestId: null },
};

test("a write through a mapping that changes no time is in the next checkpoint", async () => {
  await using ground = new Ground();
  const path = join(await ground.home(), "workspace", "mapped");
  writeFileSync(path, Buffer.alloc(8192, "a"));
  const script = `
import mmap, sys
f = open(sys.argv[1], "r+b"); m = mmap.mmap(f.fileno(), 8192); m[0:1] = b"b"
print("mapped", flush=True)
for line in sys.stdin:
    m[0:1] = line[0:1].encode(); print("written", flush=True)`;
  const writer = spawn("python3", ["-c", script, path], { stdio: ["pipe", "pipe", "inherit"] });
  try {
    await once(writer.stdout, "data");
    let newest = await ground.taken(ground.owner(), { writers: "live" });
    let silent = 0;
    for (let round = 0; round < 20 && silent === 0; round++) {
      const before = statSync(path, { bigint: true });
      writer.stdin.write(`${round % 10}\n`);
      await once(writer.stdout, "data");
      // Other work on this machine may have had the page written back; then the time changes, and shows nothing.
      if (statSync(path, { bigint: true }).ctimeNs === before.ctimeNs) silent++;
      const next = await ground.taken(ground.owner(), { writers: "live" });
      const range = { from: newest, to: next };
      const { changes } = await ground.checkpoints.diff(ground.owner(), range, {
        texts: false,
        maxChanges: 10,
        ...never,
      });
      expect(changes.map(({ path: changed }) => changed)).toEqual(["workspace/mapped"]);
      newest = next;
    }
    expect(silent).toBe(1);
  } finally {
    writer.kill("SIGKILL");
  }
});

test("a file that changes each time it is read is torn", async () => {
  await using ground = new Ground();
  const home = await ground.home();
  const path = join(home, "workspace", "log");
  writeFileSync(path, "0");
  let count = 0;
  seam.before = (name) => {
    if (name === "read") writeFileSync(path, String(count++));
  };
  try {
    const taken = await take(contextAt(ground.root), ground.owner(), plain);
    expect(taken).toMatchObject({ checkpoint: { torn: { count: 1, paths: ["workspace/log"] } } });
  } finally {
    seam.before = null;
  }
});

test("links swapped for directories meanwhile lead nowhere", async () => {
  await using ground = new Ground();
  const home = await ground.home();
  const outside = mkdtempSync(join(tmpdir(), "sandlot-outside-"));
  writeFileSync(join(outside, "secret"), "of the host");
  mkdirSync(join(home, "workspace", "there"));
  const script = `
import os, sys
base, out = sys.argv[1:]
while True:
    os.rename(base + "/there", base + "/aside"); os.symlink(out, base + "/there")
    os.unlink(base + "/there"); os.rename(base + "/aside", base + "/there")
    try: os.unlink(base + "/f")
    except FileNotFoundError: pass
    os.mkfifo(base + "/f"); os.unlink(base + "/f"); os.symlink(out + "/secret", base + "/f")`;
  const swapping = spawn("python3", ["-c", script, join(home, "workspace"), outside], { stdio: "ignore" });
  try {
    for (let round = 0; round < 30; round++) await ground.take(ground.owner(), { writers: "live" });
  } finally {
    swapping.kill("SIGKILL");
    await once(swapping, "exit");
  }
  const found = spawnSync("grep", ["-rl", "of the host", join(ground.root, "checkpoints")]);
  expect(found.status).toBe(1);
  // A restore under the same attack is impossible: no sandbox is left. What was planted before leads nowhere either.
  rmSync(join(home, "workspace"), { recursive: true });
  mkdirSync(join(home, "workspace"));
  const first = await ground.taken();
  rmSync(join(home, "workspace"), { recursive: true });
  execFileSync("ln", ["-s", outside, join(home, "workspace")]);
  await ground.restore(first);
  expect(readdirSync(outside)).toEqual(["secret"]);
  expect(statSync(join(home, "workspace")).isDirectory()).toBe(true);
  rmSync(outside, { recursive: true });
});

test("a hole of 10 GB is not read, and stays one", async () => {
  await using ground = new Ground();
  const path = join(await ground.home(), "workspace", "hole");
  execFileSync("truncate", ["-s", "10G", path]);
  const id = await ground.taken();
  expect((await ground.checkpoints.usage(ground.owner().user)).storedBytes).toBeLessThan(10_000);
  rmSync(path);
  await ground.restore(id);
  expect(statSync(path)).toMatchObject({ size: 10 * 1024 ** 3, blocks: 0 });
});

test("300 levels come back", async () => {
  await using ground = new Ground();
  const home = await ground.home();
  const work = join(home, "workspace");
  execFileSync("sh", [
    "-c",
    'cd "$0"; i=0; while [ $i -lt 300 ]; do mkdir d; cd d; i=$((i+1)); done; echo deep > f',
    work,
  ]);
  const id = await ground.taken();
  rmSync(join(work, "d"), { recursive: true });
  await ground.restore(id);
  const found = execFileSync("find", [work, "-name", "f"], { encoding: "utf8" }).trim();
  expect(found.split("/d").length).toBe(301);
});

test("on a full disk a take fails whole, and works again with room", async (context) => {
  if (process.getuid?.() !== 0) return context.skip("only root can mount a small file system");
  const mount = mkdtempSync(join(tmpdir(), "sandlot-small-"));
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=8m", "tmpfs", mount]);
  try {
    await using ground = new Ground({}, join(mount, "fleet"));
    const home = await ground.home();
    fill(home);
    const first = await ground.taken();
    const state = describeTree(home);
    execFileSync("dd", ["if=/dev/urandom", `of=${join(home, "workspace", "big")}`, "bs=1M", "count=5"], {
      stdio: "ignore",
    });
    await expect(ground.take()).rejects.toMatchObject({ code: "checkpoint_refused" });
    // Without the look ahead it meets the end of the disk itself.
    const reckless = contextAt(ground.root, { freeBytesMin: Number.NEGATIVE_INFINITY });
    await expect(take(reckless, ground.owner(), plain)).rejects.toMatchObject({ code: "disk_limit_exceeded" });
    expect(await ground.checkpoints.verify(ground.owner(), null, never)).toEqual({ checked: 1, damaged: [] });
    rmSync(join(home, "workspace", "big"));
    writeFileSync(join(home, "workspace", "small"), "x");
    await ground.taken();
    await ground.restore(first);
    expect(describeTree(home)).toEqual(state);
    // A purge needs no room.
    spawnSync("dd", ["if=/dev/zero", `of=${join(mount, "filler")}`, "bs=4k"], { stdio: "ignore" });
    await ground.workspaces.purge(ground.spot());
    expect(await ground.checkpoints.list(ground.owner())).toEqual([]);
  } finally {
    // Lazily: contexts of this process keep the databases of their locks open.
    execFileSync("umount", ["--lazy", mount]);
    rmSync(mount, { recursive: true });
  }
});

test("bounds refuse with their name, and push out only what is unprotected", async () => {
  await using ground = new Ground({ threadCheckpointsMax: 6, userBytesMax: 200_000 });
  const home = await ground.home();
  for (let at = 0; at < 10; at++) {
    writeFileSync(join(home, "workspace", "f"), `version ${at}`);
    await ground.taken(ground.owner(), at === 1 ? { label: "mine" } : {});
  }
  await ground.checkpoints.collect((problem) => expect(problem).toBe(""), never.signal);
  const list = await ground.checkpoints.list(ground.owner());
  expect(list).toHaveLength(6);
  expect(list.some(({ label }) => label === "mine")).toBe(true);
  expect(await ground.checkpoints.verify(ground.owner(), null, never)).toEqual({ checked: 6, damaged: [] });
  writeFileSync(join(home, "workspace", "big"), Buffer.alloc(300_000, "ab"));
  await expect(ground.take()).rejects.toMatchObject({
    code: "checkpoint_refused",
    details: { thread: "t1", bound: "stored bytes of the user", max: 200_000 },
  });
});

test("an older generation writes nothing into a restored tree", async () => {
  await using ground = new Ground();
  const home = await ground.home();
  const first = await ground.taken();
  const [older, newer] = [ground.spot(), ground.spot()];
  writeFileSync(join(home, "workspace", "later"), "x");
  const context = contextAt(ground.root);
  const target = { checkpoint: first, as: "restore" } as const;
  const { place: _, ...use } = newer;
  const unread = { token: "t" as Token, blueprint: "default", blueprintHash: "h" as BlueprintHash };
  await ground.workspaces.prepareHome({ ...use, ...unread });
  await expect(restore(context, older, { ...target, requestId: "old" }, null)).rejects.toMatchObject({
    code: "stale_generation",
  });
  expect(existsSync(join(home, "workspace", "later"))).toBe(true);
  await restore(context, newer, { ...target, requestId: "new" }, null);
  expect(existsSync(join(home, "workspace", "later"))).toBe(false);
});

test("one user's files are no other's to read", async () => {
  await using ground = new Ground();
  writeFileSync(join(await ground.home(), "workspace", "f"), "of user one");
  const id = await ground.taken();
  const stranger = ground.owner("t1", "u2");
  await ground.home(stranger);
  await expect(ground.checkpoints.find(stranger, id)).rejects.toMatchObject({ code: "checkpoint_not_found" });
  const source = { kind: "checkpoint", owner: stranger, checkpoint: id } as const;
  await expect(ground.checkpoints.seed(source, ground.owner("new", "u2"), null, never)).rejects.toMatchObject({
    code: "checkpoint_not_found",
  });
  // The same content of another user is stored again: its presence tells nothing.
  writeFileSync(join(ground.path(stranger), "workspace", "f"), "of user one");
  const taken = await ground.take(stranger);
  expect(taken.kind === "taken" && taken.checkpoint.addedBytes).toBeGreaterThan(10);
  chmodSync(join(ground.root, "checkpoints"), 0o700);
  expect(readFileSync(join(ground.path(stranger), "workspace", "f"), "utf8")).toBe("of user one");
});
