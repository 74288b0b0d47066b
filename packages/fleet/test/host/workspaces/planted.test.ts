/** Files that a sandbox should never be able to plant in its slot, and their handling if it does. */

import { execFileSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ensureBound, settleWorkspace } from "../../../src/backend/workspace-binding.ts";
import { account, Ground, isRoot, NOTE, outcomeOf } from "./ground.ts";

let ground: Ground;
beforeEach(() => {
  ground = new Ground();
});
afterEach(() => ground.dispose());

/** A workspace in a slot whose sandbox modifies it and is then gone. */
async function afterSandbox(tamper: (mntPath: string, userData: string) => void) {
  const key = ground.newKey();
  const { spot, mntPath } = await ground.boundWith(key, "mine");
  tamper(mntPath, join(mntPath, "user-data"));
  const dropped = await ground.workspaces.dropSlot(spot.place);
  return { key, spot, mntPath, dropped };
}

describe("un-binding", () => {
  it("finds a workspace that was renamed, and leaves the symbolic link under its name behind", async () => {
    const { key, spot } = await afterSandbox((mntPath, userData) => {
      renameSync(userData, join(mntPath, "elsewhere"));
      symlinkSync("/etc", userData);
    });
    expect(await ground.workspaces.look(spot)).toEqual({ home: false, slot: true, stale: false });
    await settleWorkspace(ground.workspaces, spot, false);
    expect(lstatSync(ground.homePath(key)).isDirectory()).toBe(true);
    expect(await ground.note(key)).toBe("mine");
    const [entry] = ground.workspaces.quarantined().entries;
    expect(entry?.about).toMatchObject({ ...key, slot: spot.place.slice("slot:".length) });
    expect(readdirSync(entry?.path ?? "").sort()).toEqual(["acp-workspace", "user-data"]);
  });

  it("finds a workspace deep inside a directory that was planted", async () => {
    const { key, spot } = await afterSandbox((mntPath, userData) => {
      mkdirSync(join(mntPath, "a", "b", "c"), { recursive: true });
      renameSync(userData, join(mntPath, "a", "b", "c", "d"));
      mkdirSync(userData);
      writeFileSync(join(userData, "note"), "planted");
    });
    await settleWorkspace(ground.workspaces, spot, false);
    expect([await ground.note(key), ground.notes()]).toEqual(["mine", ["mine", "planted"]]);
    expect(ground.names("slots")).toEqual([]);
  });

  it("takes another directory under the name for what it is: not the workspace", async () => {
    const { key, spot, dropped } = await afterSandbox((_, userData) => {
      // Kept while the other one is created, so that the other one cannot get its inode.
      renameSync(userData, `${ground.root}/kept`);
      mkdirSync(join(userData, "workspace"), { recursive: true });
      writeFileSync(join(userData, NOTE), "planted");
    });
    expect(dropped).toBe("dropped");
    expect(await ground.workspaces.look(spot)).toEqual({ home: false, slot: false, stale: false });
    expect(existsSync(ground.homePath(key))).toBe(false);
    expect(ground.names("quarantine").length).toBe(1);
    expect(await outcomeOf(ground.workspaces.moveHome(spot))).toBe("file_not_found");
  });

  it("keeps everything else that is found, and nothing that is only scaffolding", async () => {
    const plain = await afterSandbox(() => {});
    await settleWorkspace(ground.workspaces, plain.spot, false);
    expect(ground.names("quarantine")).toEqual([]);
    const { spot, key } = await afterSandbox((mntPath) => {
      writeFileSync(join(mntPath, "note"), "planted");
      execFileSync("mkfifo", [join(mntPath, "fifo")]);
    });
    await settleWorkspace(ground.workspaces, spot, false);
    expect(await ground.note(key)).toBe("mine");
    const { entries, truncated } = ground.workspaces.quarantined();
    expect([entries.length, truncated, entries[0]?.about?.reason]).toEqual([
      1,
      false,
      "it was in the slot and is no workspace",
    ]);
    await ground.workspaces.removeQuarantined(entries[0]?.name ?? "");
    expect(readdirSync(ground.layout.quarantine)).toEqual([]);
    expect(await outcomeOf(ground.workspaces.removeQuarantined("../homes"))).toBe("file_not_found");
  });

  it("does not happen while processes may be left", async () => {
    const key = ground.newKey();
    const { spot } = await ground.boundWith(key, "mine");
    const { workspaces } = ground;
    for (const step of ["moveHome", "purge", "quarantine"] as const)
      expect(await outcomeOf(workspaces[step](spot)), step).toBe("sandbox_in_use");
    expect(await ground.note(key)).toBe("mine");
  });
});

describe("binding", () => {
  it("does not move into a slot where something stands under the name", async () => {
    const key = ground.newKey();
    await ground.homeWith(key, "mine");
    for (const plant of [
      (path: string) => symlinkSync("/etc", path),
      (path: string) => symlinkSync("nowhere", path),
      (path: string) => writeFileSync(path, ""),
      (path: string) => mkdirSync(path),
    ]) {
      const { spot, mntPath } = await ground.slotFor(key);
      plant(join(mntPath, "user-data"));
      expect(await outcomeOf(ensureBound(ground.workspaces, spot))).toBe("file_exists");
      expect(await ground.note(key)).toBe("mine");
    }
  });

  it("does not follow a directory that its sandbox replaced by a symbolic link", async () => {
    const key = ground.newKey();
    const home = await ground.homeWith(key, "mine");
    const outside = join(ground.root, "outside");
    mkdirSync(outside);
    rmSync(join(home, "uploads"), { recursive: true });
    symlinkSync(outside, join(home, "uploads"));
    rmSync(join(home, "outputs"), { recursive: true });
    const { spot, mntPath } = await ground.slotFor(key);
    await ensureBound(ground.workspaces, spot);
    expect(readdirSync(outside)).toEqual([]);
    const outputs = lstatSync(join(mntPath, "user-data", "outputs"));
    expect([outputs.isDirectory(), outputs.uid]).toEqual([true, account?.uid ?? process.getuid?.()]);
  });

  it("leaves the slot to the fleet, and gives the workspace to the sandbox", async (context) => {
    if (!isRoot) return context.skip("only root can give files to another account");
    const key = ground.newKey();
    const { spot, mntPath } = await ground.slotFor(key);
    await ensureBound(ground.workspaces, spot);
    // On the host the path is closed; a sandbox enters by a mount.
    chmodSync(ground.layout.root, 0o711);
    const as = { uid: account?.uid ?? 0, gid: account?.gid ?? 0 };
    const run = (command: string) => {
      try {
        execFileSync("/bin/sh", ["-c", command], { cwd: "/", ...as, stdio: "pipe" });
        return "done";
      } catch {
        return "refused";
      }
    };
    expect(run(`mv ${mntPath}/user-data ${mntPath}/mine`)).toBe("refused");
    expect(run(`ln -s /etc ${mntPath}/x`)).toBe("refused");
    expect(run(`ls ${ground.layout.slots} || ls ${ground.layout.markers} || ls ${ground.layout.homes}`)).toBe(
      "refused",
    );
    expect(run(`echo x > ${mntPath}/user-data/workspace/x`)).toBe("done");
    expect(run(`echo x > ${mntPath}/acp-workspace/x`)).toBe("done");
    expect(readFileSync(join(mntPath, "user-data", ".acp-workspace", "x"), "utf8")).toBe("x\n");
  });

  it("makes no file writable for everyone", async () => {
    const key = ground.newKey();
    await ground.homeWith(key, "mine");
    await ground.boundWith(ground.newKey(), "other");
    for (const entry of readdirSync(ground.root, { recursive: true, withFileTypes: true })) {
      if (entry.isSymbolicLink()) continue;
      const path = join(entry.parentPath, entry.name);
      expect(lstatSync(path).mode & 0o022, path).toBe(0);
    }
  });
});

it("a hard link inside a workspace is moved and purged like any file", async () => {
  const { key, spot } = await afterSandbox((_, userData) => linkSync(join(userData, NOTE), join(userData, "twin")));
  await settleWorkspace(ground.workspaces, spot, false);
  expect(await ground.note(key)).toBe("mine");
  await settleWorkspace(ground.workspaces, { ...spot, place: "home" }, true);
  expect(ground.notes()).toEqual([]);
});
