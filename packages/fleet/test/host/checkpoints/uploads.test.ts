/** Files that the host writes into a workspace: one that was opened before a restore changes nothing during it. */

import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ThreadId, UserId } from "@sandlot/contract";
import { expect, onTestFinished, test } from "vitest";
import { hostWorkspaces } from "../../../src/host/workspaces/host-workspaces.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { Ground } from "./ground.ts";

const UPLOADS = "/mnt/user-data/uploads";

async function opened() {
  const ground = new Ground();
  onTestFinished(() => ground[Symbol.asyncDispose]());
  const owner = ground.owner();
  const path = await ground.home(owner);
  writeFileSync(join(path, "uploads", "present"), "as it was");
  const host = hostWorkspaces(ground.workspaces, systemWorld());
  return { ground, owner, path, host, key: owner as { user: UserId; thread: ThreadId } };
}

async function* text(content: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(content);
}

test("an upload that was staged before a restore is not placed while it stands, and is afterwards", async () => {
  const { ground, owner, path, host, key } = await opened();
  await host.use(key, async (files) => {
    const staged = await files.stage(UPLOADS, text("new"));
    const spot = ground.spot(owner);
    const held = await ground.workspaces.restoring.begin(spot, "0123456789abcdef", "{}");
    onTestFinished(() => rmSync(held.draft, { recursive: true, force: true }));
    const refused = { code: "restore_incomplete" };
    await expect(staged.place(`${UPLOADS}/present`)).rejects.toMatchObject(refused);
    await expect(files.write(`${UPLOADS}/other`, text("x"), null)).rejects.toMatchObject(refused);
    await expect(files.remove(`${UPLOADS}/present`)).rejects.toMatchObject(refused);
    expect(readFileSync(join(path, "uploads", "present"), "utf8")).toBe("as it was");
    await ground.workspaces.restoring.end(spot);
    await staged.place(`${UPLOADS}/present`);
    expect(readFileSync(join(path, "uploads", "present"), "utf8")).toBe("new");
  });
});

test("a write whose content arrives during a restore is refused at its end", async () => {
  const { ground, owner, path, host, key } = await opened();
  const spot = ground.spot(owner);
  const slow = (async function* () {
    yield Buffer.from("first");
    await ground.workspaces.restoring.begin(spot, "0123456789abcdef", "{}");
    yield Buffer.from("second");
  })();
  const writing = host.writeFile?.(key, `${UPLOADS}/late`, slow, {});
  await expect(writing).rejects.toMatchObject({ code: "restore_incomplete" });
  expect(existsSync(join(path, "uploads", "late"))).toBe(false);
});

test("a file is not written into a directory that a restore has taken away", async () => {
  const { ground, path, host, key } = await opened();
  const slow = (async function* () {
    yield Buffer.from("first");
    renameSync(join(path, "uploads"), join(ground.root, "away"));
    yield Buffer.from("second");
  })();
  const writing = host.writeFile?.(key, `${UPLOADS}/late`, slow, {});
  await expect(writing).rejects.toMatchObject({ code: "file_not_found" });
  expect(existsSync(join(ground.root, "away", "late"))).toBe(false);
});
