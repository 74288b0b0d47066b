/** The host's own access to the files of a workspace, beside a sandbox that plants anything. */

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { WorkspaceHandle } from "../../../src/host/workspaces/handle.ts";
import { give } from "../../../src/world/given-bytes.ts";
import { account, Ground, isRoot, type Key, NOTE, outcomeOf, world } from "./ground.ts";

/** How long the host and a racer compete for one name; and the maximum, where the machine gives them no turns. */
const RACE_MS = 1_500;
const RACE_MAX_MS = 20_000;

let ground: Ground;
let key: Key;
let home: string;
let handle: WorkspaceHandle;
let outside: string;

beforeEach(async () => {
  ground = new Ground();
  key = ground.newKey();
  home = await ground.homeWith(key, "mine");
  const located = await ground.workspaces.locate(key);
  if (located === null) throw new Error("there is no workspace");
  handle = located;
  outside = join(ground.root, "outside");
  mkdirSync(outside);
  writeFileSync(join(outside, "secret"), "secret");
});
afterEach(() => {
  handle.close();
  ground.dispose();
});

const text = async (path: string) => Buffer.from(await handle.files.read(path)).toString();

describe("locate", () => {
  it("finds a workspace at home and in a slot, and the descriptor stays good while it moves", async () => {
    const { spot, mntPath } = await ground.slotFor(key);
    await ground.workspaces.moveIn(spot);
    expect(await text(NOTE)).toBe("mine");
    await handle.files.write("uploads/new", "through the old handle");
    expect(readFileSync(join(mntPath, "user-data", "uploads", "new"), "utf8")).toBe("through the old handle");
    expect(await ground.note(key)).toBe("mine");
    await ground.workspaces.dropSlot(spot.place);
    await ground.workspaces.moveHome(spot);
    expect([await text("uploads/new"), await ground.note(key)]).toEqual(["through the old handle", "mine"]);
  });

  it("takes the workspace that was renamed inside its slot, not what was planted", async () => {
    const { spot, mntPath } = await ground.slotFor(key);
    await ground.workspaces.moveIn(spot);
    renameSync(join(mntPath, "user-data"), join(mntPath, "x"));
    symlinkSync(outside, join(mntPath, "user-data"));
    expect(await ground.note(key)).toBe("mine");
  });

  it("answers with nothing for a thread that has none, and makes one only when asked", async () => {
    const other = ground.newKey();
    expect(await ground.workspaces.locate(other)).toBeNull();
    using made = await ground.workspaces.locate(other, { make: true });
    await made?.files.write("uploads/early", "before any sandbox");
    const prepared = await ground.workspaces.prepareHome(ground.marker(other));
    expect(prepared.existing).toBe(true);
    expect(readFileSync(join(prepared.userDataPath, "uploads", "early"), "utf8")).toBe("before any sandbox");
  });

  it("a closed handle reaches nothing, and what is going on is finished first", async () => {
    const parts = (async function* () {
      yield Buffer.from("one ");
      handle.close();
      await new Promise((resolve) => setTimeout(resolve, 20));
      yield Buffer.from("two");
    })();
    await handle.files.write("uploads/slow", parts);
    expect(readFileSync(join(home, "uploads", "slow"), "utf8")).toBe("one two");
    expect(await outcomeOf(handle.files.stat(NOTE))).toContain("closed");
    expect(() => handle.path).toThrow("closed");
  });
});

describe("paths", () => {
  it.each([
    ["/etc/passwd", "invalid_path"],
    ["../names.json", "invalid_path"],
    ["workspace/../../names.json", "invalid_path"],
    ["workspace/\0", "invalid_path"],
    [`workspace/${"x".repeat(256)}`, "invalid_path"],
    ["workspace/nothing", "file_not_found"],
    ["workspace/note/x", "not_a_directory"],
    ["workspace", "is_a_directory"],
    ["", "is_a_directory"],
  ])("%j cannot be read: %s", async (path, code) => {
    expect(await outcomeOf(handle.files.read(path))).toBe(code);
  });

  it("extra slashes and dots mean nothing", async () => {
    expect(await text("./workspace//./note")).toBe("mine");
  });
});

describe("files that a sandbox may plant", () => {
  it("a symbolic link is not read through, written through or entered", async () => {
    symlinkSync(join(outside, "secret"), join(home, "workspace", "link"));
    symlinkSync(outside, join(home, "workspace", "directory"));
    symlinkSync("dangling", join(home, "workspace", "dangling"));
    expect(await outcomeOf(handle.files.read("workspace/link"))).toBe("invalid_path");
    expect(await outcomeOf(handle.files.read("workspace/directory/secret"))).toBe("not_a_directory");
    expect(await outcomeOf(handle.files.list("workspace/directory"))).toBe("not_a_directory");
    for (const path of ["workspace/link", "workspace/dangling", "workspace/directory/new", "workspace/directory/a/b"])
      expect(await outcomeOf(handle.files.write(path, "x")), path).toMatch(/^(invalid_path|not_a_directory)$/);
    expect(await outcomeOf(handle.files.mkdir("workspace/directory/a"))).toBe("not_a_directory");
    expect(await outcomeOf(handle.files.remove("workspace/directory/secret"))).toBe("not_a_directory");
    await handle.files.remove("workspace/directory", { recursive: true });
    expect([readdirSync(outside), existsSync(join(home, "workspace", "directory"))]).toEqual([["secret"], false]);
    expect(readFileSync(join(outside, "secret"), "utf8")).toBe("secret");
    const kinds = (await handle.files.list("workspace")).entries.map(({ path, kind }) => [path, kind]);
    expect(kinds).toEqual([
      ["workspace/dangling", "symlink"],
      ["workspace/link", "symlink"],
      ["workspace/note", "file"],
    ]);
  });

  it("a workspace's own directory as a symbolic link leads nowhere", async () => {
    await handle.files.remove("uploads");
    symlinkSync(outside, join(home, "uploads"));
    expect(await outcomeOf(handle.files.write("uploads/file", "x"))).toBe("not_a_directory");
    expect(readdirSync(outside)).toEqual(["secret"]);
  });

  it("a FIFO does not block, a device is not opened", async () => {
    execFileSync("mkfifo", [join(home, "workspace", "fifo")]);
    const paths = ["workspace/fifo"];
    if (isRoot) {
      execFileSync("mknod", [join(home, "workspace", "zero"), "c", "1", "5"]);
      paths.push("workspace/zero");
    }
    for (const path of paths) {
      expect(await outcomeOf(handle.files.read(path)), path).toBe("invalid_path");
      expect(await outcomeOf(handle.files.write(path, "x")), path).toBe("invalid_path");
      expect((await handle.files.stat(path)).kind, path).toBe("other");
      await handle.files.remove(path);
    }
  });

  it("a file with several names is read, and never written", async () => {
    linkSync(join(outside, "secret"), join(home, "workspace", "twin"));
    expect(await text("workspace/twin")).toBe("secret");
    expect(await outcomeOf(handle.files.write("workspace/twin", "x"))).toBe("invalid_path");
    expect(readFileSync(join(outside, "secret"), "utf8")).toBe("secret");
  });

  it("a name that changes between a directory and a link all the time never leads outside", async () => {
    const script = `
      const fs = require("node:fs");
      process.chdir(${JSON.stringify(join(home, "workspace"))});
      const attempt = (work) => { try { work(); } catch {} };
      const rename = (from, to) => attempt(() => fs.renameSync(from, to));
      for (;;) {
        rename("real", "swap"); rename("link", "real"); rename("real", "link");
        // The host may have made a directory where there was none for a moment, and may be writing into it.
        if (fs.existsSync("swap")) attempt(() => fs.rmSync("real", { recursive: true, force: true }));
        rename("swap", "real");
      }`;
    mkdirSync(join(home, "workspace", "real"));
    writeFileSync(join(home, "workspace", "real", "secret"), "inside");
    symlinkSync(outside, join(home, "workspace", "link"));
    const racer = spawn(process.execPath, ["-e", script], { stdio: "ignore" });
    const ended = once(racer, "exit");
    try {
      const seen = new Set<unknown>();
      const startedAt = world.monotonicMs();
      const elapsedMs = () => world.monotonicMs() - startedAt;
      const wanted = ["inside", "not_a_directory", "written"];
      // A busy machine may give the racer no turn for a while: then this goes on until both had one.
      while (elapsedMs() < RACE_MS || (elapsedMs() < RACE_MAX_MS && wanted.some((outcome) => !seen.has(outcome)))) {
        seen.add(await outcomeOf(text("workspace/real/secret")));
        seen.add(await outcomeOf(handle.files.write("workspace/real/written", "x").then(() => "written")));
        seen.add(await outcomeOf(handle.files.list("workspace/real").then(() => "listed")));
      }
      expect(racer.exitCode).toBeNull();
      expect([...seen].filter((outcome) => outcome === "secret")).toEqual([]);
      expect([...seen]).toEqual(expect.arrayContaining(wanted));
      expect(readdirSync(outside)).toEqual(["secret"]);
    } finally {
      racer.kill("SIGKILL");
      await ended;
    }
  });
});

describe("writing", () => {
  it("makes parents, belongs to the sandbox, and keeps the mode of what it replaces", async () => {
    await handle.files.write("uploads/a/b/file", "one");
    const owner = account?.uid ?? process.getuid?.();
    for (const name of ["uploads/a", "uploads/a/b", "uploads/a/b/file"])
      expect(lstatSync(join(home, name)).uid, name).toBe(owner);
    await handle.files.write("uploads/a/b/file", "two", { mode: 0o600 });
    const stat = await handle.files.write("uploads/a/b/file", "three");
    expect([stat.mode, stat.sizeBytes, await text("uploads/a/b/file")]).toEqual([0o600, 5, "three"]);
    expect(readdirSync(join(home, "uploads", "a", "b"))).toEqual(["file"]);
  });

  it("refuses setuid and setgid, and drops them from what it replaces", async () => {
    for (const mode of [0o4755, 0o2755, 0o6777, -1, 0o100644])
      expect(await outcomeOf(handle.files.write(NOTE, "x", { mode })), mode.toString(8)).toBe("invalid_request");
    expect(await text(NOTE)).toBe("mine");
    chmodSync(join(home, NOTE), 0o6755);
    expect((await handle.files.write(NOTE, "next")).mode).toBe(0o755);
    expect((await handle.files.write(NOTE, "next", { mode: 0o1700 })).mode).toBe(0o1700);
  });

  it("that is refused or fails leaves everything as it was", async () => {
    const failing = (async function* () {
      yield Buffer.from("some");
      throw new Error("the sender is gone");
    })();
    expect(await outcomeOf(handle.files.write(NOTE, failing))).toContain("the sender is gone");
    expect(await outcomeOf(handle.files.write(NOTE, "too much", { maxBytes: 3 }))).toBe("payload_too_large");
    expect(await outcomeOf(handle.files.write("workspace", "x"))).toBe("is_a_directory");
    expect(await outcomeOf(handle.files.write("", "x"))).toBe("invalid_path");
    expect(readdirSync(join(home, "workspace"))).toEqual(["note"]);
    expect(await text(NOTE)).toBe("mine");
  });

  it("gives back the memory of pieces that are its own, and of no others", async () => {
    const whole = new Uint8Array(100_000).fill(120);
    const shared = new Uint8Array(200).fill(121);
    async function* pieces(own: <T extends Uint8Array>(bytes: T) => T = (bytes) => bytes) {
      yield own(whole);
      yield own(shared.subarray(0, 100));
    }
    await handle.files.write("outputs/kept", pieces());
    expect(whole.length).toBe(100_000);
    await handle.files.write("outputs/given", pieces(give));
    expect(await text("outputs/given")).toBe(await text("outputs/kept"));
    expect(await text("outputs/given")).toBe("x".repeat(100_000) + "y".repeat(100));
    expect([whole.length, shared.length]).toEqual([0, 200]);
  });

  it("only over an expected version, or only where nothing is", async () => {
    const { version } = await handle.files.stat(NOTE);
    expect(await outcomeOf(handle.files.write(NOTE, "x", { ifVersion: null }))).toBe("file_changed");
    const next = await handle.files.write(NOTE, "next", { ifVersion: version });
    expect(await outcomeOf(handle.files.write(NOTE, "late", { ifVersion: version }))).toBe("file_changed");
    await handle.files.write(NOTE, "more", { ifVersion: next.version });
    const racers = [1, 2, 3, 4].map((number) => handle.files.write("workspace/new", `${number}`, { ifVersion: null }));
    const outcomes = await Promise.all(racers.map((racer) => outcomeOf(racer.then(() => "won"))));
    expect(outcomes.filter((outcome) => outcome === "won").length).toBe(1);
    expect(readdirSync(join(home, "workspace")).sort()).toEqual(["new", "note"]);
  });
});

describe("reading", () => {
  it("ranges, and streams of what was there", async () => {
    await handle.files.write("outputs/data", "0123456789");
    const read = async (range: { offset?: number; length?: number }) =>
      Buffer.from(await handle.files.read("outputs/data", range)).toString();
    expect([
      await read({ offset: 3, length: 4 }),
      await read({ offset: 8, length: 10 }),
      await read({ offset: 10 }),
    ]).toEqual(["3456", "89", ""]);
    expect(await outcomeOf(read({ offset: 11 }))).toBe("range_not_satisfiable");
    expect(await outcomeOf(read({ offset: -1 }))).toBe("range_not_satisfiable");
  });

  it("a file that becomes shorter ends a stream with an error; one that is replaced is read to its own end", async () => {
    writeFileSync(join(home, "outputs", "big"), Buffer.alloc(1_000_000, 1));
    const shrinking = async () => {
      let bytes = 0;
      for await (const part of handle.files.download("outputs/big")) {
        bytes += part.length;
        truncateSync(join(home, "outputs", "big"), 10);
      }
      return bytes;
    };
    expect(await outcomeOf(shrinking())).toBe("file_changed");
    await using opened = await handle.files.open(NOTE);
    await handle.files.write(NOTE, "replaced by something longer");
    expect(Buffer.from(await opened.read()).toString()).toBe("mine");
  });

  it("lists to a depth, sorted, cut with notice", async () => {
    for (const name of ["b/c/d", "b/a", "a"]) await handle.files.write(`outputs/${name}`, "x");
    const paths = async (options: { depth?: number; maxResults?: number }) => {
      const { entries, truncated } = await handle.files.list("outputs", options);
      return [entries.map(({ path }) => path.slice("outputs/".length)), truncated];
    };
    expect(await paths({})).toEqual([["a", "b"], false]);
    expect(await paths({ depth: 3 })).toEqual([["a", "b", "b/a", "b/c", "b/c/d"], false]);
    expect(await paths({ depth: 9, maxResults: 2 })).toEqual([["a", "b"], true]);
    expect((await handle.files.list("")).entries.map(({ path }) => path)).toContain("uploads");
    await handle.files.remove("outputs/b", { recursive: true });
    expect(await outcomeOf(handle.files.remove("outputs/b"))).toBe("file_not_found");
    expect(await outcomeOf(handle.files.remove("outputs"))).toBe("directory_not_empty");
    expect(statSync(join(home, "outputs")).isDirectory()).toBe(true);
  });

  it("keeps no descriptors open", async () => {
    const before = readdirSync("/proc/self/fd").length;
    for (let round = 0; round < 20; round++) {
      await text(NOTE);
      await outcomeOf(handle.files.read("workspace/nothing/at/all"));
      await outcomeOf(handle.files.write("workspace/note/below", "x"));
      for await (const _ of handle.files.download(NOTE)) break;
    }
    expect(readdirSync("/proc/self/fd").length).toBe(before);
  });
});
