/** Preallocated files: which process fills them, which does not, and what is left when one dies meanwhile. */

import { execFileSync } from "node:child_process";
import fs, {
  chmodSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { join } from "node:path";
import type { Generation, SandboxId } from "@sandlot/contract";
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import type { WorkspaceSpot } from "../../../src/backend/backend.ts";
import { type Marker, threadKeyOf } from "../../../src/backend/labels.ts";
import { ensureBound, settleWorkspace } from "../../../src/backend/workspace-binding.ts";
import { FENCE, TENANT } from "../../../src/host/workspaces/fence.ts";
import { slotNameOf } from "../../../src/host/workspaces/layout.ts";
import { claimPreallocated, fillPreallocated, preallocate } from "../../../src/host/workspaces/preallocated.ts";
import { crashBefore, Died } from "./crash-point.ts";
import { Ground, isRoot, outcomeOf, world } from "./ground.ts";
import { onSmallDisk } from "./small-disk.ts";

let ground: Ground;
beforeEach(() => {
  ground = Ground.fast();
});
afterEach(() => ground.dispose());

/** A blank with its slot, before its bind. */
async function blank() {
  const sandboxId = world.randomHex(10) as SandboxId;
  const { place } = await ground.workspaces.prepareSlot(sandboxId, ground.nextGeneration());
  const directory = ground.layout.markersOf(sandboxId);
  const write = async () => {
    const marker = ground.marker(ground.newKey(), ground.nextGeneration(), sandboxId);
    await ground.workspaces.markers.write(marker);
    return marker;
  };
  return { sandboxId, place, directory, ahead: join(directory, ".ahead"), write };
}

const fileOf = (directory: string, { generation }: Marker) => join(directory, `${generation}.json`);
const hidden = (directory: string) => readdirSync(directory).filter((name) => name.startsWith("."));

describe("a marker", () => {
  it("is the file that was made ahead the first time, and a new one afterwards", async () => {
    const { sandboxId, directory, ahead, write } = await blank();
    const { ino } = lstatSync(ahead);
    expect(await ground.workspaces.markers.list(sandboxId)).toEqual([]);
    const first = await write();
    expect(lstatSync(fileOf(directory, first))).toMatchObject({ ino, mode: 0o100600 });
    expect(hidden(directory)).toEqual([]);
    const second = await write();
    expect(lstatSync(fileOf(directory, second)).ino).not.toBe(ino);
    expect(await ground.workspaces.markers.list(sandboxId)).toEqual([first, second]);
  });

  it.each<[string, (path: string) => unknown]>([
    ["a file with something in it", (path) => writeFileSync(path, '{"planted":true}', { mode: 0o600 })],
    ["a file that others may read", (path) => [writeFileSync(path, ""), chmodSync(path, 0o644)]],
    ["a directory", (path) => mkdirSync(path)],
    ["a symbolic link", (path) => symlinkSync(join(ground.root, "elsewhere"), path)],
    ["a pipe", (path) => execFileSync("mkfifo", [path])],
  ])("is not written into %s", async (_, plant) => {
    const elsewhere = join(ground.root, "elsewhere");
    writeFileSync(elsewhere, "", { mode: 0o600 });
    const { sandboxId, directory, ahead, write } = await blank();
    rmSync(ahead);
    plant(ahead);
    const { ino } = lstatSync(ahead);
    const marker = await write();
    expect(await ground.workspaces.markers.list(sandboxId)).toEqual([marker]);
    expect(lstatSync(fileOf(directory, marker))).toMatchObject({ mode: 0o100600 });
    expect(lstatSync(fileOf(directory, marker)).ino).not.toBe(ino);
    expect(readFileSync(elsewhere, "utf8")).toBe("");
    await ground.workspaces.dropMarkers(sandboxId);
    expect(ground.names("markers")).toEqual([]);
  });

  it("is whole or not there, wherever its writer dies, and the next one is written all the same", async () => {
    for (let call = 1, isOver = false; !isOver; call++) {
      const { sandboxId, place, directory, write } = await blank();
      const point = await crashBefore(call, "play-dead");
      const died: unknown[] = [];
      try {
        await write().catch((error: unknown) => died.push(error));
        isOver = point.calls() < call;
      } finally {
        point.remove();
      }
      expect(died.every((error) => error instanceof Died)).toBe(true);
      const whole = await ground.workspaces.markers.list(sandboxId);
      const there = readdirSync(directory).filter((name) => name.endsWith(".json"));
      expect(there, `after call ${call}`).toHaveLength(whole.length);
      if (isOver) expect(whole).toHaveLength(1);
      const next = await write();
      expect((await ground.workspaces.markers.list(sandboxId)).at(-1), `after call ${call}`).toEqual(next);
      await ground.workspaces.dropSlot(place);
      expect(ground.names("markers"), `after call ${call}`).toEqual([]);
      if (!isOver) expect(died, `at call ${call}`).toHaveLength(1);
      expect(call).toBeLessThan(20);
    }
  });

  it("is not written beside a sandbox that is gone", async () => {
    const { sandboxId, write } = await blank();
    await ground.workspaces.dropMarkers(sandboxId);
    expect(await outcomeOf(write())).toBe("file_not_found");
    expect(ground.names("markers")).toEqual([]);
  });
});

it("two writers of markers at once write two, with any interleaving of their calls", async () => {
  for (let call = 1, isOver = false; !isOver; call++) {
    const { sandboxId, directory, write } = await blank();
    const others: Promise<Marker>[] = [];
    const calls = interlope(call, () => others.push(write()));
    const mine = await write();
    isOver = calls() < call;
    if (isOver) others.push(write());
    const [theirs] = await Promise.all(others);
    const all = [mine, theirs].sort((a, b) => (a?.generation ?? 0) - (b?.generation ?? 0));
    expect(await ground.workspaces.markers.list(sandboxId), `before call ${call}`).toEqual(all);
    expect(hidden(directory), `before call ${call}`).toEqual([]);
    expect(call).toBeLessThan(20);
  }
});

it("a filled file is not filled again", () => {
  const [ahead, mine, theirs] = ["ahead", "mine", "theirs"].map((name) => join(ground.root, name));
  if (ahead === undefined || mine === undefined || theirs === undefined) throw new Error("A name is missing.");
  preallocate(ahead);
  expect(claimPreallocated(ahead, mine, "mine")).toBe(true);
  expect(claimPreallocated(ahead, theirs, "theirs")).toBe(false);
  expect(fillPreallocated(mine, "again")).toBe(false);
  expect(readFileSync(mine, "utf8")).toBe("mine");
  expect(readdirSync(ground.root)).not.toContain("theirs");
});

/** Runs a function before the n-th file system call of the next operation. Returns the number of calls. */
function interlope(call: number, act: () => void): () => number {
  const functions = fs as unknown as Record<string, (...args: unknown[]) => unknown>;
  const names = ["openSync", "writeSync", "writeFileSync", "fstatSync", "closeSync", "renameSync"];
  const originals = names.map((name) => [name, functions[name]] as const);
  const undo = () => {
    for (const [name, original] of originals) if (original !== undefined) functions[name] = original;
    syncBuiltinESMExports();
  };
  onTestFinished(undo);
  let calls = 0;
  for (const [name, original] of originals) {
    functions[name] = (...args) => {
      calls++;
      if (calls === call) {
        undo();
        act();
      }
      return original?.(...args);
    };
  }
  syncBuiltinESMExports();
  return () => {
    undo();
    return calls;
  };
}

describe("binding a thread that is new", () => {
  const slotOf = ({ place }: Pick<WorkspaceSpot, "place">) => slotNameOf(place) ?? "";

  it("gives names to what was made ahead, and makes nothing", async () => {
    const key = ground.newKey();
    const { spot } = await ground.slotFor(key);
    const [slot, spare] = [ground.layout.slot(slotOf(spot)), ground.layout.spareHome(slotOf(spot))];
    const home = ground.layout.home(threadKeyOf(key.user, key.thread));
    const inodes = [join(spare, "names.json"), join(spare, "fence.-"), join(slot, "tenant.-")].map(inodeOf);
    expect([FENCE.read(spare), TENANT.read(slot)]).toEqual([null, null]);
    await ensureBound(ground.workspaces, spot);
    expect(FENCE.read(home)).toEqual({ generation: spot.generation, at: slotOf(spot), sandboxId: spot.sandboxId });
    expect(TENANT.read(slot)).toMatchObject({ generation: spot.generation });
    const named = [join(home, "names.json"), only(home, "fence."), only(slot, "tenant.")];
    expect(named.map(inodeOf)).toEqual(inodes);
    expect(JSON.parse(readFileSync(join(home, "names.json"), "utf8"))).toEqual(key);
  });

  it("does not take a home that another process has begun to take", async () => {
    const key = ground.newKey();
    const { spot } = await ground.slotFor(key);
    const names = join(ground.layout.spareHome(slotOf(spot)), "names.json");
    writeFileSync(names, JSON.stringify({ user: "somebody", thread: "a much longer name than that of whoever comes" }));
    await ensureBound(ground.workspaces, spot);
    expect(await ground.workspaces.slotTenant(spot.place)).toMatchObject({ owner: key });
    await ground.workspaces.dropSlot(spot.place);
    await settleWorkspace(ground.workspaces, spot, false);
    expect([ground.names("slots"), ground.names("trash"), ground.names("quarantine")]).toEqual([[], [], []]);
  });

  it("records the owner of a home where a power cut has left the file empty", async () => {
    const key = ground.newKey();
    await ground.homeWith(key, "mine");
    const names = join(ground.layout.home(threadKeyOf(key.user, key.thread)), "names.json");
    writeFileSync(names, "");
    await ground.workspaces.prepareHome(ground.marker(key));
    expect(JSON.parse(readFileSync(names, "utf8"))).toEqual(key);
  });

  const inodeOf = (path: string) => lstatSync(path).ino;
  const only = (directory: string, prefix: string) => {
    const [name, ...more] = readdirSync(directory).filter((entry) => entry.startsWith(prefix));
    expect(more).toEqual([]);
    return join(directory, name ?? "");
  };
});

it("a slot for which there is no room leaves nothing, wherever the room ends", async (context) => {
  if (!isRoot) return context.skip("only root can mount");
  await onSmallDisk(async (small, fill) => {
    const prepare = () => outcomeOf(small.workspaces.prepareSlot("sandbox" as SandboxId, 1 as Generation));
    const filler = fill();
    let freed = 0;
    for (; (await prepare()) === "disk_limit_exceeded"; freed++) {
      expect([small.names("slots"), small.names("markers")], `with ${freed} inodes`).toEqual([[], []]);
      await small.workspaces.sweep();
      rmSync(join(filler, String(freed)));
    }
    expect([small.names("slots"), small.names("markers")]).toEqual([["sandbox-1"], ["sandbox"]]);
    expect(freed).toBeGreaterThan(10);
  });
});
