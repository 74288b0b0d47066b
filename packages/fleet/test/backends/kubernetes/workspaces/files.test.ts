/** Files of threads on a shared volume without a sandbox: through the volume's process, with hostile content. */

import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { SandlotError } from "@sandlot/contract";
import { afterAll, expect, it } from "vitest";
import { SharedWorkspaces } from "../../../../src/backends/kubernetes/workspaces/shared-workspaces.ts";
import type { Owner } from "../../../../src/host/workspaces/homes.ts";
import { outcomeOf, VolumeGround, world } from "./volume-ground.ts";

const mounted = new VolumeGround();
const shared = new SharedWorkspaces({
  ...{ claimName: "claim", mountPath: mounted.root, folder: "fleet", world, hasLateBinding: true },
  deadlineMs: 60_000,
});
const ground = new VolumeGround(join(mounted.root, "fleet"));
afterAll(async () => {
  await shared.close();
  mounted.dispose();
});

async function* pieces(...texts: readonly string[]): AsyncGenerator<Uint8Array> {
  for (const text of texts) yield Buffer.from(text);
}

async function textOf(content: AsyncIterable<Uint8Array>): Promise<string> {
  const parts: Uint8Array[] = [];
  for await (const part of content) parts.push(part);
  return Buffer.concat(parts).toString();
}

const at = (path: string) => `/mnt/user-data/${path}`;
const writeTo = (key: Owner, path: string, ...texts: readonly string[]) =>
  shared.files.use(key, (files) => files.write(at(path), pieces(...texts), null));

it("writes, lists, reads, stages and removes, and a first write makes the workspace", async () => {
  const key = ground.newKey();
  expect(await shared.files.use(key, (files) => files.list(at("uploads")))).toEqual([]);
  expect(await shared.files.measure?.(key, 100)).toBe(null);
  await writeTo(key, "uploads/a", "one ", "two");
  await shared.files.use(key, async (files) => {
    expect(await files.stat(at("uploads/a"))).toMatchObject({ kind: "file", sizeBytes: 7 });
    expect(await files.stat(at("uploads/none"))).toBe(null);
    expect(await textOf(files.read(at("uploads/a"), { offset: 4 }))).toBe("two");
    const staged = await files.stage(at("uploads"), pieces("staged"));
    expect([staged.sizeBytes, await textOf(staged.read())]).toEqual([6, "staged"]);
    await staged.place(at("uploads/b"));
    await staged.discard();
    expect((await files.list(at("uploads"))).map(({ path }) => path)).toEqual([at("uploads/a"), at("uploads/b")]);
    await files.remove(at("uploads/a"));
    expect(await outcomeOf(files.remove(at("uploads/a")))).toBe("file_not_found");
  });
  expect(await shared.files.measure?.(key, 100)).toMatchObject({ complete: true });
  expect((await shared.files.measure?.(key, 100))?.bytes).toBeGreaterThan(0);
});

it("passes big content in both directions unchanged, and a broken source keeps its own error", async () => {
  const key = ground.newKey();
  const big = Buffer.alloc(3 * 1024 * 1024 + 17, "0123456789");
  async function* chunks() {
    for (let start = 0; start < big.length; start += 700_000) yield big.subarray(start, start + 700_000);
  }
  const written = await shared.files.writeFile?.(key, at("workspace/big"), chunks(), {});
  expect(written).toMatchObject({ sizeBytes: big.length });
  const file = await shared.files.openFile?.(key, at("workspace/big"));
  expect(Buffer.compare(Buffer.from(await textOf(file?.stream() ?? pieces())), big)).toBe(0);
  expect(await textOf(file?.stream({ offset: 10, length: 5 }) ?? pieces())).toBe("01234");
  await file?.close();
  const failure = new SandlotError("disk_limit_exceeded", { path: "mine" });
  async function* broken() {
    yield Buffer.from("half");
    throw failure;
  }
  const failed = shared.files.writeFile?.(key, at("workspace/half"), broken(), {});
  await expect(failed).rejects.toBe(failure);
  expect(await shared.files.openFile?.(key, at("workspace/half"))).toBe(null);
  expect(readdirSync(join(ground.homePath(key), "workspace"))).toEqual(["big"]);
});

it("leaves content unread where only a sandbox may write", async () => {
  const key = ground.newKey();
  await writeTo(key, "workspace/x", "x");
  symlinkSync("/etc", join(ground.homePath(key), "workspace", "link"));
  const content = pieces("kept");
  expect(await shared.files.writeFile?.(key, at("workspace/link/passwd"), content, {})).toBe(null);
  expect(await textOf(content)).toBe("kept");
});

it("follows no link, and reads no special file", async () => {
  const key = ground.newKey();
  await writeTo(key, "workspace/x", "x");
  const workspace = join(ground.homePath(key), "workspace");
  symlinkSync("/etc/hostname", join(workspace, "name"));
  symlinkSync("../../../..", join(workspace, "up"));
  execFileSync("mkfifo", [join(workspace, "fifo")]);
  for (const path of ["workspace/name", "workspace/up/t", "workspace/fifo"])
    expect(await shared.files.openFile?.(key, at(path)), path).toBe(null);
  const planted = join(workspace, "outputs");
  symlinkSync(mounted.root, planted);
  expect(await outcomeOf(writeTo(key, "workspace/outputs/escaped", "x"))).not.toMatchObject({ kind: "file" });
  expect(existsSync(join(mounted.root, "escaped"))).toBe(false);
});

it("lists a directory with names that are no text, and reaches a tree that is deeper than a path can be", async () => {
  const key = ground.newKey();
  await writeTo(key, "workspace/x", "x");
  const home = ground.homePath(key);
  writeFileSync(Buffer.concat([Buffer.from(`${home}/workspace/`), Buffer.from([0xff, 0xfe])]), "bytes");
  const deeper = 'import os\nfor _ in range(60): os.mkdir("d" * 200); os.chdir("d" * 200)';
  execFileSync("python3", ["-c", deeper], { cwd: join(home, "workspace") });
  const names = (await shared.files.use(key, (files) => files.list(at("workspace")))).map(({ path }) => path);
  expect(names).toContain(at("workspace/x"));
  const generation = ground.nextGeneration();
  await shared.purge({ ...key, sandboxId: "purger" as never, generation, place: "home" });
  expect([ground.names("trash"), await ground.note(key)]).toEqual([[], null]);
});

it("copies a workspace to a thread that has none, all or nothing", async () => {
  const [from, to] = [ground.newKey(), ground.newKey()];
  await writeTo(from, "workspace/note", "branched");
  expect(await shared.files.branch?.(from, to)).toMatchObject({ fileCount: 1 });
  expect(readFileSync(join(ground.homePath(to), "workspace/note"), "utf8")).toBe("branched");
  expect(await outcomeOf(shared.files.branch?.(from, to) ?? Promise.resolve())).toBe("thread_exists");
  const small = ground.newKey();
  const limits = { maxBytes: 3, maxFiles: 10 };
  const refused = shared.files.branch?.(from, small, limits) ?? Promise.resolve();
  expect(await outcomeOf(refused)).toBe("disk_limit_exceeded");
  expect([await ground.note(small), ground.names("drafts")]).toEqual([null, []]);
});

it("reads and writes the files of a thread whose workspace is in a running sandbox's slot", async () => {
  const key = ground.newKey();
  const { mnt } = await ground.boundWith(key, "inside");
  await writeTo(key, "uploads/a", "from outside");
  expect(readFileSync(join(mnt, "user-data/uploads/a"), "utf8")).toBe("from outside");
  const file = await shared.files.openFile?.(key, at("workspace/note"));
  expect(await textOf(file?.stream() ?? pieces())).toBe("inside");
  await file?.close();
});

it("tells the daemon of a blank what to wait for, and puts it there with the workspace", async () => {
  const key = ground.newKey();
  const { spot, mnt } = await ground.slotFor(key);
  const arrival = shared.arrival(spot);
  await shared.makeIn(spot);
  expect(arrival?.path).toBe("/mnt/user-data/.sandlot-arrived");
  expect(readFileSync(join(mnt, "user-data/.sandlot-arrived"), "utf8")).toBe(arrival?.nonce);
  expect(shared.arrival({ ...spot, place: "home" })).toBe(null);
});
