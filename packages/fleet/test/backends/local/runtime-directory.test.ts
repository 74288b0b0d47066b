/** The creation of the directory that every sandbox mounts. */

import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import type { FleetEvent } from "@sandlot/contract";
import { sandboxdFiles } from "@sandlot/sandboxd";
import { describe, expect, it, onTestFinished } from "vitest";
import { resolveSettings } from "../../../src/config/resolve-settings.ts";
import { makeRuntimeDirectory, RuntimeKeeper } from "../../../src/host/runtime/runtime-directory.ts";
import { beginUse, noteUse } from "../../../src/host/runtime/runtime-uses.ts";
import { openFleet } from "../../../src/open-fleet.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { hasBubblewrap } from "../../gateway/support/gateway-process.ts";

it("is made beside what killed processes have left half made, which goes when it is old", async () => {
  const parent = mkdtempSync(join(tmpdir(), "sl-runtime-"));
  onTestFinished(() => rmSync(parent, { recursive: true, force: true }));
  const [old, recent] = ["runtime-0123456789.17~", "runtime-0123456789.18~"];
  for (const name of [old, recent]) {
    mkdirSync(join(parent, name));
    writeFileSync(join(parent, name, "loader"), "");
  }
  utimesSync(join(parent, old), 1, 1);
  const { path } = await makeRuntimeDirectory(parent, process.execPath, sandboxdFiles());
  expect(readdirSync(parent).sort()).toEqual([basename(path), recent].sort());
});

describe("a runtime directory", () => {
  const HOUR_MS = 3_600_000;

  /** The keeper of one release's daemon files, beside directories of other releases that were made a day ago. */
  function keeperBeside(...others: readonly string[]) {
    const root = mkdtempSync(join(tmpdir(), "sl-runtime-"));
    onTestFinished(() => rmSync(root, { recursive: true, force: true }));
    const [parent, objects] = [join(root, "frames"), join(root, "objects")];
    mkdirSync(objects);
    for (const name of others) {
      mkdirSync(join(parent, name), { recursive: true });
      writeFileSync(join(parent, name, "loader"), "");
      utimesSync(join(parent, name), 1, 1);
    }
    const daemon = sandboxdFiles();
    const world = systemWorld();
    const problems: unknown[] = [];
    const parts = { parent, nodePath: process.execPath, daemon, objects: [objects], world };
    const open = () => new RuntimeKeeper({ ...parts, onProblem: (problem) => problems.push(problem) });
    /** A recorded sandbox that mounts one of them. */
    const sandboxOn = (name: string, runtime: string) => {
      mkdirSync(join(objects, name));
      noteUse(join(parent, runtime), join(objects, name));
    };
    const left = () => readdirSync(parent).filter((name) => !name.endsWith(".uses"));
    return { open, sandboxOn, objects, problems, left };
  }

  it("of another version goes when no sandbox uses it, and stays while one does", async () => {
    const { open, sandboxOn, objects, left } = keeperBeside("runtime-aa", "runtime-bb");
    sandboxOn("one-1", "runtime-aa");
    const current = basename((await open().get()).path);
    expect(left().sort()).toEqual([current, "runtime-aa"].sort());
    rmSync(join(objects, "one-1"), { recursive: true });
    await open().get();
    expect(left()).toEqual([current]);
  });

  it("that cannot be removed is reported, stops neither the others nor a sandbox, and goes with a later sweep", async () => {
    const { open, objects, problems, left } = keeperBeside("runtime-aa", "runtime-bb", "runtime-cc");
    // Its links are no directory, which stops every removal of a directory.
    const odd = join(objects, "../frames/runtime-bb.uses");
    writeFileSync(odd, "");
    const current = basename((await open().get()).path);
    expect(problems).toEqual([expect.objectContaining({ code: "ENOTDIR" })]);
    expect(left().sort()).toEqual([current, "runtime-bb"].sort());
    rmSync(odd);
    await open().get();
    expect(problems).toHaveLength(1);
    expect(left()).toEqual([current]);
  });

  it("says so when no sweep is possible at all", async () => {
    const { open, objects, problems } = keeperBeside("runtime-aa");
    rmSync(objects, { recursive: true });
    symlinkSync(objects, objects);
    await open().get();
    expect(problems).toEqual([expect.objectContaining({ code: "ELOOP" })]);
  });

  it("stays when a process has begun to use it, and while a sandbox of an earlier release lives", async () => {
    const { open, objects, left } = keeperBeside("runtime-aa", "runtime-bb");
    const frames = join(objects, "../frames");
    mkdirSync(join(objects, "old-1"));
    const current = basename((await open().get()).path);
    expect(left().sort()).toEqual([current, "runtime-aa", "runtime-bb"].sort());
    rmSync(join(objects, "old-1"), { recursive: true });
    expect(beginUse(join(frames, "runtime-bb"), Date.now())).toBe(true);
    await open().get();
    expect(left().sort()).toEqual([current, "runtime-bb"].sort());
    expect(beginUse(join(frames, "runtime-aa"), Date.now())).toBe(false);
  });

  it("is made again when it was removed, and links of sandboxes that are gone go", async () => {
    const { open, sandboxOn, objects } = keeperBeside("runtime-aa");
    const keeper = open();
    const made = await keeper.get();
    keeper.use(made, join(objects, "gone-1"));
    sandboxOn("here-1", basename(made.path));
    await open().get();
    expect(readdirSync(`${made.path}.uses`)).toEqual(["here-1"]);
    rmSync(made.path, { recursive: true });
    expect((await keeper.get()).path).toBe(made.path);
    expect(statSync(made.path).mtimeMs).toBeGreaterThan(Date.now() - HOUR_MS);
  });
});

it.skipIf(!hasBubblewrap)(
  "that cannot be removed is an event of the fleet (skipped where bubblewrap is not installed)",
  async () => {
    const home = mkdtempSync(join(tmpdir(), "sl-runtime-"));
    onTestFinished(() => rmSync(home, { recursive: true, force: true }));
    const { fleetId } = resolveSettings({ home, backend: "local" }, {});
    const frames = join(home, fleetId, "frames");
    mkdirSync(join(frames, "runtime-aa"), { recursive: true });
    writeFileSync(join(frames, "runtime-aa.uses"), "");
    await using fleet = await openFleet({ home, backend: "local" });
    const heard: FleetEvent[] = [];
    fleet.events.on((event) => heard.push(event), "housekeeping-failed");
    await (await fleet.acquire({ thread: "one" })).release();
    await fleet.destroy({ thread: "one" }, { purge: true });
    expect(heard).toMatchObject([{ task: "runtime-directories", problem: expect.stringContaining("ENOTDIR") }]);
  },
);

it.skipIf(!hasBubblewrap)(
  "is noted as used by every local sandbox (skipped where bubblewrap is not installed)",
  async () => {
    const home = mkdtempSync(join(tmpdir(), "sl-runtime-"));
    onTestFinished(() => rmSync(home, { recursive: true, force: true }));
    await using fleet = await openFleet({ home, backend: "local" });
    const lease = await fleet.acquire({ thread: "one" });
    const frames = readdirSync(home, { recursive: true, encoding: "utf8" }).filter((path) =>
      /\.uses\/[^/]+$/.test(path),
    );
    expect(frames.map((path) => basename(path).split("-")[0])).toEqual([lease.sandbox.id]);
    expect(frames.every((path) => existsSync(join(home, path)))).toBe(true);
    await lease.release();
    await fleet.destroy({ thread: "one" }, { purge: true });
    expect(frames.some((path) => existsSync(join(home, path)))).toBe(false);
  },
);
