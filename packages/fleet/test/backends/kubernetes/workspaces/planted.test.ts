/**
 * What a sandbox plants in its slot on a shared volume. It runs as the gateway's own account, so it may rename, link and
 * change rights in its whole `/mnt`.
 */

import { execFileSync, spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
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
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ensureBound, settleWorkspace } from "../../../../src/backend/workspace-binding.ts";
import { NOTE, outcomeOf, VolumeGround } from "./volume-ground.ts";

let ground: VolumeGround;
beforeEach(async () => {
  ground = await VolumeGround.open();
});
afterEach(() => ground.dispose());

/** A workspace in a slot whose sandbox tampers with it and is then gone. */
async function afterSandbox(tamper: (mnt: string, userData: string) => void) {
  const key = ground.newKey();
  const { spot, mnt } = await ground.boundWith(key, "mine");
  tamper(mnt, join(mnt, "user-data"));
  const released = await ground.workspaces.release(spot.place);
  return { key, spot, released };
}

describe("a workspace that goes home", () => {
  it("is found under another name, and the link under its name stays behind", async () => {
    const { key, spot, released } = await afterSandbox((mnt, userData) => {
      renameSync(userData, join(mnt, "elsewhere"));
      symlinkSync("/etc", userData);
    });
    expect([released, await ground.workspaces.look(spot)]).toEqual([
      "occupied",
      { home: false, slot: true, stale: false },
    ]);
    await settleWorkspace(ground.workspaces, spot, false);
    expect(lstatSync(ground.homePath(key)).isDirectory()).toBe(true);
    expect([await ground.note(key), ground.names("quarantine").length, ground.names("released")]).toEqual([
      "mine",
      1,
      [],
    ]);
  });

  it("is found deep in planted directories whose names are no text", async () => {
    const { key, spot } = await afterSandbox((mnt, userData) => {
      const move = 'import os; os.makedirs(b"\\xff/\\xfe/c"); os.rename("user-data", b"\\xff/\\xfe/c/d")';
      execFileSync("python3", ["-c", move], { cwd: mnt });
      mkdirSync(userData);
      writeFileSync(join(userData, "note"), "planted");
    });
    await settleWorkspace(ground.workspaces, spot, false);
    expect([await ground.note(key), ground.notes()]).toEqual(["mine", ["mine", "planted"]]);
  });

  it("is not taken for another directory that got its name", async () => {
    const { key, spot, released } = await afterSandbox((_, userData) => {
      // Kept while the other one is created, so that the other one cannot get its inode.
      renameSync(userData, `${ground.root}/kept`);
      mkdirSync(join(userData, "workspace"), { recursive: true });
      writeFileSync(join(userData, NOTE), "planted");
    });
    expect([released, await ground.workspaces.look(spot)]).toEqual([
      "dropped",
      { home: false, slot: false, stale: false },
    ]);
    expect([await ground.note(key), ground.names("quarantine").length]).toEqual([null, 1]);
    rmSync(`${ground.root}/kept`, { recursive: true });
  });

  it("leaves more planted names than a search looks at to a person", async () => {
    const { key, spot, released } = await afterSandbox((mnt, userData) => {
      for (let number = 0; number < 10_500; number++) mkdirSync(join(mnt, `d${number}`));
      mkdirSync(join(mnt, "d0", "deep"));
      renameSync(userData, join(mnt, "d0", "deep", "user-data"));
    });
    expect([released, (await ground.workspaces.look(spot)).slot]).toEqual(["dropped", false]);
    expect([await ground.note(key), ground.notes(), ground.names("quarantine").length]).toEqual([null, ["mine"], 1]);
  });

  it("needs no more than scaffolding to be over: mount points of the kubelet and empty files go", async () => {
    const { spot } = await afterSandbox((mnt) => {
      mkdirSync(join(mnt, "skills", "public"), { recursive: true });
      writeFileSync(join(mnt, "skills", "public", "config"), "");
    });
    await settleWorkspace(ground.workspaces, spot, false);
    expect([ground.names("released"), ground.names("quarantine")]).toEqual([[], []]);
  });

  it("stays while processes may be left", async () => {
    const key = ground.newKey();
    const { spot } = await ground.boundWith(key, "mine");
    for (const step of ["moveHome", "purge", "quarantine"] as const)
      expect(await outcomeOf(ground.workspaces[step](spot)), step).toBe("sandbox_in_use");
    expect(await ground.note(key)).toBe("mine");
  });
});

describe("a workspace that is bound", () => {
  it("does not go where something has its name", async () => {
    const key = ground.newKey();
    await ground.homeWith(key, "mine");
    for (const plant of [
      (path: string) => symlinkSync("/etc", path),
      (path: string) => symlinkSync("nowhere", path),
      (path: string) => writeFileSync(path, ""),
      (path: string) => mkdirSync(path),
    ]) {
      const { spot, mnt } = await ground.slotFor(key);
      plant(join(mnt, "user-data"));
      expect(await outcomeOf(ensureBound(ground.workspaces, spot))).toBe("file_exists");
      expect(await ground.note(key)).toBe("mine");
    }
  });

  it.each(["a link", "a directory", "a file"])("shows its arrival although %s has that name", async (what) => {
    const key = ground.newKey();
    const home = await ground.homeWith(key, "mine");
    const [outside, name] = [join(ground.root, "outside"), join(home, ".sandlot-arrived")];
    writeFileSync(outside, "outside");
    if (what === "a link") symlinkSync(outside, name);
    else if (what === "a directory") mkdirSync(join(name, "x"), { recursive: true });
    else writeFileSync(name, "planted");
    const { spot, mnt, slot } = await ground.slotFor(key);
    await ensureBound(ground.workspaces, spot);
    expect(lstatSync(join(mnt, "user-data/.sandlot-arrived")).isFile()).toBe(true);
    expect(readFileSync(join(mnt, "user-data/.sandlot-arrived"), "utf8")).toBe(`${slot}.${spot.generation}`);
    expect(readFileSync(outside, "utf8")).toBe("outside");
  });

  it("gets its directories back without following what replaced them", async () => {
    const key = ground.newKey();
    const home = await ground.homeWith(key, "mine");
    const outside = join(ground.root, "outside");
    mkdirSync(outside);
    for (const name of ["uploads", "outputs"]) rmSync(join(home, name), { recursive: true });
    symlinkSync(outside, join(home, "uploads"));
    const { spot, mnt } = await ground.slotFor(key);
    await ensureBound(ground.workspaces, spot);
    expect(readdirSync(outside)).toEqual([]);
    expect(lstatSync(join(mnt, "user-data/outputs")).isDirectory()).toBe(true);
  });
});

it("a directory that a kubelet made under the name of an old workspace is no workspace", async (context) => {
  if (process.getuid?.() !== 0) return context.skip("only root can make directories of another account");
  const key = ground.newKey();
  const home = await ground.homeWith(key, "mine");
  const { spot } = await ground.slotFor(key);
  await ensureBound(ground.workspaces, spot);
  mkdirSync(home);
  execFileSync("chown", ["4242", home]);
  expect(await ground.workspaces.look(spot)).toEqual({ home: false, slot: true, stale: false });
  await ground.workspaces.release(spot.place);
  await settleWorkspace(ground.workspaces, spot, false);
  await ground.workspaces.fence(key, ground.marker(key));
  expect([await ground.note(key), existsSync(home)]).toEqual(["mine", false]);
});

it("an account without privileges gets back what a sandbox took from itself: all rights", async (context) => {
  if (process.getuid?.() !== 0) return context.skip("only root can become another account");
  execFileSync("chown", ["-R", "4242:4242", ground.root]);
  const child = fileURLToPath(new URL("./ordinary-child.ts", import.meta.url));
  const as = ["--reuid=4242", "--regid=4242", "--clear-groups", process.execPath];
  const { NODE_EXTRA_CA_CERTS: _, ...env } = process.env;
  const done = spawnSync("setpriv", [...as, "--conditions=sandlot-source", child, ground.root], { env });
  expect([done.stderr.toString(), done.stdout.toString()]).toEqual(["", "mine\n"]);
});

it("a directory that its sandbox made unreadable does not hide what else is in the slot", async () => {
  const { key, spot } = await afterSandbox((mnt) => {
    mkdirSync(join(mnt, "closed"));
    writeFileSync(join(mnt, "closed", "note"), "closed");
    chmodSync(join(mnt, "closed"), 0);
  });
  await settleWorkspace(ground.workspaces, spot, false);
  expect([await ground.note(key), ground.names("quarantine").length]).toEqual(["mine", 1]);
});
