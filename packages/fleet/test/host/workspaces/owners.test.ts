/** Giving workspaces to accounts, where a sandbox cannot see files as its own. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { SandboxId } from "@sandlot/contract";
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { threadKeyOf } from "../../../src/backend/labels.ts";
import { account, Ground, isRoot, type Key, NOTE, world } from "./ground.ts";

const CHILD = fileURLToPath(new URL("give-child.ts", import.meta.url));
const FILES = 100;
const OWNER = { uid: 59_123, gid: 59_123 };
const USUAL = account?.uid ?? 0;

let ground: Ground;
beforeEach(() => {
  ground = Ground.fast();
});
afterEach(() => ground.dispose());

/** Processes that were started with a path. */
function startedWith(path: string): readonly number[] {
  return readdirSync("/proc")
    .map(Number)
    .filter((one) => Number.isInteger(one) && commandOf(one).includes(path));
}

/** Empty when it has ended meanwhile. */
function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "latin1");
  } catch {
    return "";
  }
}

/** A workspace with many files at home, and how many of them an account has. */
async function homeWithMany(key: Key): Promise<{ path: string; ownedBy: (uid: number) => number }> {
  const path = await ground.homeWith(key, "x");
  const many = join(path, "workspace/many");
  mkdirSync(many);
  for (let count = 0; count < FILES; count++) {
    writeFileSync(join(many, String(count)), "");
    chownSync(join(many, String(count)), USUAL, USUAL);
  }
  return { path, ownedBy: (uid) => readdirSync(many).filter((name) => lstatSync(join(many, name)).uid === uid).length };
}

/** Another process that gives the workspace to `OWNER`. It waits in the middle, with the owner of one file changed. */
async function waitingGiver(key: Key) {
  const path = ground.homePath(key);
  const aside = mkdtempSync(join(tmpdir(), "sandlot-give-"));
  const [isWaiting, mayGoOn] = [join(aside, "waiting"), join(aside, "go")];
  const one = join(path, "workspace/many/7");
  const script = `#!/bin/sh
/bin/chown -h ${OWNER.uid}:${OWNER.gid} '${one}'
: >'${isWaiting}'
while [ ! -e '${mayGoOn}' ]; do /bin/sleep 0.02; done
exec /bin/chown "$@"
`;
  writeFileSync(join(aside, "chown"), script, { mode: 0o755 });
  const child = spawn(process.execPath, [CHILD, ground.root, threadKeyOf(key.user, key.thread), String(OWNER.uid)], {
    stdio: "inherit",
    env: { ...process.env, PATH: `${aside}:${process.env.PATH}` },
  });
  const exit = once(child, "exit");
  const goOn = () => writeFileSync(mayGoOn, "");
  const kill = async () => {
    child.kill("SIGKILL");
    await exit;
    goOn();
    await expect.poll(() => startedWith(path), { timeout: 10_000 }).toEqual([]);
  };
  onTestFinished(async () => {
    await kill();
    rmSync(aside, { recursive: true });
  });
  await expect.poll(() => existsSync(isWaiting), { timeout: 20_000 }).toBe(true);
  return { exit, goOn, kill };
}

describe.skipIf(!isRoot)("a workspace", () => {
  it("is not given any further once the fleet was killed, and the next one gives all of it", async () => {
    const key = ground.newKey();
    const { path, ownedBy } = await homeWithMany(key);
    const giver = await waitingGiver(key);
    await giver.kill();
    expect([ownedBy(OWNER.uid), statSync(path).uid]).toEqual([1, USUAL]);
    await ground.workspaces.prepareHome(ground.marker(key), { owner: OWNER });
    expect([ownedBy(OWNER.uid), statSync(path).uid, statSync(join(path, NOTE)).uid]).toEqual([
      FILES,
      OWNER.uid,
      OWNER.uid,
    ]);
  });

  it.each(["a sandbox of its own", "a blank"])(
    "that was half given away when the fleet was killed belongs to its account again, wholly, in %s",
    async (kind) => {
      const key = ground.newKey();
      const { path, ownedBy } = await homeWithMany(key);
      const giver = await waitingGiver(key);
      await giver.kill();
      if (kind === "a blank") {
        const { spot, mntPath } = await ground.slotFor(key);
        await ground.workspaces.moveIn(spot);
        expect(statSync(join(mntPath, "user-data/workspace/many/7")).uid).toBe(USUAL);
        await ground.workspaces.dropSlot(spot.place);
        await ground.workspaces.moveHome(spot);
      } else await ground.workspaces.prepareHome(ground.marker(key));
      expect([ownedBy(USUAL), statSync(path).uid]).toEqual([FILES, USUAL]);
    },
  );

  it.each(["a sandbox of its own", "a blank", "a purge"])(
    "that another process is giving away is waited for before it is for %s",
    async (kind) => {
      const key = ground.newKey();
      const { path, ownedBy } = await homeWithMany(key);
      const giver = await waitingGiver(key);
      const { spot, mntPath } = await ground.slotFor(key);
      let isDone = false;
      const next = {
        "a sandbox of its own": () => ground.workspaces.prepareHome(ground.marker(key)).then(() => {}),
        "a blank": () => ground.workspaces.moveIn(spot),
        "a purge": () => ground.workspaces.purge({ ...spot, place: "home" }),
      }[kind];
      const work = next?.().finally(() => (isDone = true));
      await new Promise((resolve) => setTimeout(resolve, 300));
      expect([isDone, existsSync(path)]).toEqual([false, true]);
      giver.goOn();
      expect(await giver.exit).toEqual([0, null]);
      await work;
      if (kind === "a sandbox of its own") expect([ownedBy(USUAL), statSync(path).uid]).toEqual([FILES, USUAL]);
      else if (kind === "a blank") {
        const many = join(mntPath, "user-data/workspace/many");
        expect(readdirSync(many).filter((name) => lstatSync(join(many, name)).uid !== USUAL)).toEqual([]);
      } else expect(readdirSync(ground.layout.home(threadKeyOf(key.user, key.thread)))).not.toContain("giving");
    },
  );

  it("gets files from the host that belong to the account it is given to meanwhile", async () => {
    const key = ground.newKey();
    const path = await ground.homeWith(key, "x");
    const handle = await ground.workspaces.locate(key);
    if (handle === null) throw new Error("There is no workspace.");
    const { promise: given, resolve: goOn } = Promise.withResolvers<void>();
    async function* content() {
      yield Buffer.from("x");
      await given;
    }
    const write = handle.files.write("workspace/new/file", content());
    await expect.poll(() => existsSync(join(path, "workspace/new"))).toBe(true);
    await ground.workspaces.prepareHome(ground.marker(key), { owner: OWNER });
    goOn();
    await write;
    await handle.files.mkdir("workspace/later");
    handle.close();
    const owners = ["new", "new/file", "later"].map((name) => statSync(join(path, "workspace", name)).uid);
    expect(owners).toEqual([OWNER.uid, OWNER.uid, OWNER.uid]);
  });

  it("that lost a directory gets it back for the account that it belongs to", async () => {
    const key = ground.newKey();
    const path = await ground.homeWith(key, "x");
    await ground.workspaces.prepareHome(ground.marker(key), { owner: OWNER });
    rmdirSync(join(path, "uploads"));
    await ground.workspaces.prepareHome(ground.marker(key), { owner: OWNER });
    expect(statSync(join(path, "uploads")).uid).toBe(OWNER.uid);
  });

  it("is not given to the account of an older generation's sandbox", async () => {
    const { workspaces } = ground;
    const key = ground.newKey();
    const sandboxId = world.randomHex(10) as SandboxId;
    const generation = ground.nextGeneration();
    const { place } = await workspaces.prepareSlot(sandboxId, generation, { owner: OWNER });
    const path = await ground.homeWith(key, "x");
    const before = statSync(path).uid;
    await expect(workspaces.moveIn({ ...key, sandboxId, generation, place })).rejects.toThrow("Generation");
    expect(statSync(path).uid).toBe(before);
  });
});
