/** Restore, undo, redo, diff, fork and export on the disk. */

import { execFileSync, spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { WorkspaceOwner } from "../../../src/backend/checkpoints.ts";
import { threadKeyOf } from "../../../src/backend/labels.ts";
import { describeTree, fill, Ground, never } from "./ground.ts";

/** One of everything that is kept. */
function fillAll(home: string): void {
  fill(home);
  const work = join(home, "workspace");
  symlinkSync("d0/f0.txt", join(work, "link"));
  symlinkSync(Buffer.from("nowhere \xff", "latin1"), join(work, "broken"));
  linkSync(join(work, "d0", "f0.txt"), join(work, "d1", "hard"));
  linkSync(join(work, "d0", "f0.txt"), join(home, "outputs", "hard too"));
  mkdirSync(join(work, "empty"));
  chmodSync(join(work, "empty"), 0o711);
  writeFileSync(Buffer.concat([Buffer.from(join(work, "d1/")), Buffer.from([0xff, 0xfe, 0x41])]), "not UTF-8");
  writeFileSync(join(work, "big"), Buffer.alloc(9_000_000, "abcdefg"));
  writeFileSync(join(work, "closed"), "x");
  chmodSync(join(work, "closed"), 0o000);
  execFileSync("truncate", ["-s", "64M", join(work, "hole")]);
  utimesSync(join(work, "d2", "f2.txt"), 1_000_000_000.123456, 1_000_000_000.123456);
  writeFileSync(join(home, ".home", ".profile"), "PATH=~/bin:$PATH\n");
}

test("everything that is kept comes back as it was, and undo and redo go their ways", async () => {
  await using ground = new Ground();
  const owner = ground.owner();
  const home = await ground.home();
  fillAll(home);
  const states = [describeTree(home)];
  const first = await ground.taken();
  const work = join(home, "workspace");
  rmSync(join(work, "d0"), { recursive: true });
  writeFileSync(join(work, "d0"), "a file where a directory was");
  rmSync(join(work, "link"));
  mkdirSync(join(work, "link"));
  writeFileSync(join(work, "link", "inside"), "x");
  writeFileSync(join(work, "closed"), "y");
  rmSync(join(work, "d1", "hard"));
  writeFileSync(join(work, "d1", "hard"), "on its own");
  chmodSync(join(work, "empty"), 0o755);
  states.push(describeTree(home));
  const second = await ground.taken();
  writeFileSync(join(work, "third"), "3");
  linkSync(join(work, "third"), join(work, "third too"));
  states.push(describeTree(home));
  await ground.taken();

  const restored = await ground.restore(first);
  expect(describeTree(home)).toEqual(states[0]);
  expect(restored.checkpoint).toMatchObject({ restoredFrom: first, isHead: true, parent: restored.safety.id });
  expect(await ground.take()).toMatchObject({ kind: "unchanged" });
  await ground.restore(restored.safety.id);
  expect(describeTree(home)).toEqual(states[2]);

  const step = async (direction: "undo" | "redo") => {
    const to = await ground.checkpoints.resolve(owner, direction);
    await ground.restore(to.id, owner, { as: direction });
    return describeTree(home);
  };
  // A restore is an act of its own: the first undo takes it back.
  expect(await step("undo")).toEqual(states[0]);
  expect(await step("redo")).toEqual(states[2]);
  await ground.restore(second);
  writeFileSync(join(work, "fourth"), "4");
  const fourth = describeTree(home);
  await ground.taken();
  expect(await step("undo")).toEqual(states[1]);
  expect(await step("undo")).toEqual(states[2]);
  expect(await step("redo")).toEqual(states[1]);
  expect(await step("redo")).toEqual(fourth);
  await expect(step("redo")).rejects.toMatchObject({ code: "nothing_to_undo" });
  expect(existsSync(join(ground.root, "homes", threadKeyOf(owner.user, owner.thread), "restore.*"))).toBe(false);
});

test("only some paths come back; what the target left out stays", async () => {
  await using ground = new Ground();
  const home = await ground.home();
  fill(home);
  const work = join(home, "workspace");
  execFileSync("mkfifo", [join(work, "d1", "pipe")]);
  const first = await ground.taken();
  writeFileSync(join(work, "d0", "f0.txt"), "changed");
  writeFileSync(join(work, "d1", "f1.txt"), "changed too");
  writeFileSync(join(work, "d1", "new"), "new");
  rmSync(join(work, "d2"), { recursive: true });
  mkdirSync(join(home, ".home", ".cache"));
  writeFileSync(join(home, ".home", ".cache", "kept"), "x");
  await ground.restore(first, ground.owner(), { paths: ["workspace/d1", "/mnt/user-data/workspace/d2/f2.txt"] });
  expect(readFileSync(join(work, "d0", "f0.txt"), "utf8")).toBe("changed");
  expect(readFileSync(join(work, "d1", "f1.txt"), "utf8")).toBe("content 1");
  expect(existsSync(join(work, "d1", "new"))).toBe(false);
  expect(readdirSync(join(work, "d2"))).toEqual(["f2.txt"]);
  await ground.restore(first);
  expect(existsSync(join(work, "d1", "pipe"))).toBe(true);
  expect(existsSync(join(home, ".home", ".cache", "kept"))).toBe(true);
  await expect(ground.restore(first, ground.owner(), { paths: ["../x"] })).rejects.toMatchObject({
    code: "invalid_path",
  });
});

test("a diff names what changed, with texts, and follows no link", async () => {
  await using ground = new Ground();
  const home = await ground.home();
  fill(home);
  const first = await ground.taken();
  const work = join(home, "workspace");
  writeFileSync(join(work, "d0", "f0.txt"), "one\ntwo\n");
  rmSync(join(work, "d1", "f1.txt"));
  symlinkSync("/etc/passwd", join(work, "d1", "f1.txt"));
  chmodSync(join(work, "d2", "f2.txt"), 0o600);
  writeFileSync(join(work, "binary"), Buffer.from([0, 1, 2]));
  writeFileSync(join(work, ".gitattributes"), "* diff=evil\n");
  const options = { texts: true, maxChanges: 100, ...never };
  const now = await ground.checkpoints.diff(ground.owner(), { from: first, to: null }, options);
  expect(now.counts).toEqual({ added: 2, changed: 3, removed: 0 });
  expect(now.changes.map(({ path, change }) => `${change} ${path}`)).toEqual([
    "added workspace/.gitattributes",
    "added workspace/binary",
    "changed workspace/d0/f0.txt",
    "kind workspace/d1/f1.txt",
    "mode workspace/d2/f2.txt",
  ]);
  expect(now.changes[2]?.diff).toBe(
    "--- a/workspace/d0/f0.txt\n+++ b/workspace/d0/f0.txt\n@@ -1 +1,2 @@\n-content 0\n\\ No newline at end of file\n+one\n+two\n",
  );
  expect(JSON.stringify(now)).not.toContain("root:");
  const second = await ground.taken();
  const between = await ground.checkpoints.diff(ground.owner(), { from: first, to: second }, options);
  expect(between.changes).toEqual(now.changes);
  const few = await ground.checkpoints.diff(ground.owner(), { from: null, to: second }, { ...options, maxChanges: 2 });
  expect(few).toMatchObject({ truncated: true, changes: { length: 2 } });
});

test("a fork has links and names that are not UTF-8; another user's thread is not found", async () => {
  await using ground = new Ground();
  const home = await ground.home();
  fillAll(home);
  const source = ground.owner();
  const fork = ground.owner("fork");
  const seeded = await ground.checkpoints.seed({ kind: "thread", owner: source }, fork, null, never);
  expect(describeTree(ground.path(fork))).toEqual(describeTree(home));
  expect(seeded.skipped).toEqual([]);
  expect(await ground.take(fork)).toMatchObject({ kind: "unchanged" });
  await expect(ground.checkpoints.seed({ kind: "thread", owner: source }, fork, null, never)).rejects.toMatchObject({
    code: "thread_exists",
  });
  const stranger = ground.owner("x", "u2");
  await expect(ground.checkpoints.seed({ kind: "thread", owner: source }, stranger, null, never)).rejects.toMatchObject(
    {
      code: "thread_not_found",
    },
  );
  const small = { maxBytes: 10, maxFiles: 10 };
  const other = ground.owner("other");
  await expect(ground.checkpoints.seed({ kind: "thread", owner: source }, other, small, never)).rejects.toMatchObject({
    code: "disk_limit_exceeded",
  });
  expect(existsSync(ground.path(other))).toBe(false);
});

test("an export is a tar archive that tar reads, and that seeds a thread", async () => {
  await using ground = new Ground();
  const home = await ground.home();
  fillAll(home);
  rmSync(join(home, "workspace", "hole"));
  const id = await ground.taken();
  const pieces: Uint8Array[] = [];
  for await (const piece of ground.checkpoints.export(ground.owner(), id, never)) pieces.push(Buffer.from(piece));
  const aside = mkdtempSync(join(tmpdir(), "sandlot-export-"));
  try {
    writeFileSync(join(aside, "x.tar"), Buffer.concat(pieces));
    mkdirSync(join(aside, "out"));
    const tar = spawnSync("tar", ["-xpf", join(aside, "x.tar"), "-C", join(aside, "out")], { encoding: "utf8" });
    expect(tar.status).toBe(0);
    // GNU tar takes names as bytes in any case.
    expect(tar.stderr.split("\n").filter((line) => line !== "" && !line.includes("'hdrcharset'"))).toEqual([]);
    expect(describeTree(join(aside, "out"))).toEqual(describeTree(home));
  } finally {
    rmSync(aside, { recursive: true, force: true });
  }
  const to = ground.owner("seeded");
  async function* content() {
    yield* pieces;
  }
  await ground.checkpoints.seed({ kind: "archive", content: content() }, to, null, never);
  // The library that reads archives knows milliseconds.
  const without = (lines: string[]) => lines.map((line) => line.replace(/ \d{15,}/, ""));
  expect(without(describeTree(ground.path(to)))).toEqual(without(describeTree(home)));
});

test("a hostile archive leads nowhere", async () => {
  await using ground = new Ground();
  const script = `
import tarfile, io, sys
t = tarfile.open(sys.argv[1], "w:gz")
def add(name, type=tarfile.REGTYPE, link="", data=b"evil"):
    i = tarfile.TarInfo(name); i.type = type; i.linkname = link
    i.size = len(data) if type == tarfile.REGTYPE else 0
    t.addfile(i, io.BytesIO(data))
add("../escape"); add("/tmp/sandlot-absolute"); add("out", tarfile.SYMTYPE, "/tmp")
add("out/sandlot-through-link"); add("hard", tarfile.LNKTYPE, "/etc/passwd"); add("hard2", tarfile.LNKTYPE, "out")
add("device", tarfile.CHRTYPE); add("fine.txt"); add("uploads/../../x"); add("uploads/there")
t.close()`;
  const aside = mkdtempSync(join(tmpdir(), "sandlot-archive-"));
  const path = join(aside, "x.tar.gz");
  execFileSync("python3", ["-c", script, path]);
  async function* content() {
    yield readFileSync(path);
  }
  const to: WorkspaceOwner = ground.owner("seeded");
  const seeded = await ground.checkpoints.seed({ kind: "archive", content: content() }, to, null, never);
  rmSync(aside, { recursive: true });
  expect(seeded.skipped).toHaveLength(7);
  expect(readdirSync(join(ground.path(to), "workspace")).sort()).toEqual(["fine.txt", "out"]);
  expect(readdirSync(join(ground.path(to), "uploads"))).toEqual(["there"]);
  for (const name of ["sandlot-absolute", "sandlot-through-link"]) expect(existsSync(join("/tmp", name))).toBe(false);
  async function* broken() {
    yield Buffer.alloc(2_000, "no archive ");
  }
  await expect(
    ground.checkpoints.seed({ kind: "archive", content: broken() }, ground.owner("y"), null, never),
  ).rejects.toMatchObject({ code: "invalid_path" });
});

test("a directory of the host seeds the workspace", async () => {
  await using ground = new Ground();
  const aside = mkdtempSync(join(tmpdir(), "sandlot-host-"));
  writeFileSync(join(aside, "main.py"), "print(1)\n");
  symlinkSync("main.py", join(aside, "link"));
  const to = ground.owner("seeded");
  await ground.checkpoints.seed({ kind: "directory", path: aside }, to, null, never);
  rmSync(aside, { recursive: true });
  expect(readdirSync(join(ground.path(to), "workspace")).sort()).toEqual(["link", "main.py"]);
  if (process.getuid?.() === 0) expect(statSync(join(ground.path(to), "workspace", "main.py")).uid).toBe(64_321);
});

test("damage is found before anything is changed", async () => {
  await using ground = new Ground();
  const home = await ground.home();
  fill(home);
  const owner = ground.owner();
  const first = await ground.taken();
  writeFileSync(join(home, "workspace", "d0", "f0.txt"), "changed");
  await ground.taken();
  const target = { checkpoint: first, requestId: "r", as: "restore" } as const;
  await ground.checkpoints.check(owner, target, { maxBytes: 1_000_000, maxFiles: 1_000 }, never);
  await expect(ground.checkpoints.check(owner, target, { maxBytes: 10, maxFiles: 10 }, never)).rejects.toMatchObject({
    code: "disk_limit_exceeded",
  });
  const packs = execFileSync("sh", ["-c", `grep -rl 'content 0' "$0"/checkpoints`, ground.root], { encoding: "utf8" });
  const [pack = ""] = packs.trim().split("\n");
  writeFileSync(pack, readFileSync(pack, "latin1").replace("content 0", "CONTENT 0"), "latin1");
  await expect(ground.checkpoints.check(owner, target, null, never)).rejects.toMatchObject({
    code: "checkpoint_damaged",
    details: { checkpoint: first, path: "workspace/d0/f0.txt" },
  });
  expect(await ground.checkpoints.verify(owner, null, never)).toEqual({
    checked: 2,
    damaged: [{ checkpoint: first, path: "workspace/d0/f0.txt" }],
  });
  renameSync(pack, `${pack}.gone`);
  const problems: string[] = [];
  await ground.checkpoints.collect((problem) => problems.push(problem), never.signal);
  expect(problems).toHaveLength(1);
});
