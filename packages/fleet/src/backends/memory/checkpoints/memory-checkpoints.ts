/**
 * The memory backend's `Checkpoints`: the steps are the engine's; archives are read and written here.
 *
 * Reading an archive is all or nothing: what is hostile, too big or no archive is refused before anything is made.
 */

import { lstat, readdir, readFile, readlink } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { createGunzip } from "node:zlib";
import { dateOf, type FleetId, SandlotError } from "@sandlot/contract";
import type { Checkpoints, LongCall } from "../../../backend/checkpoints.ts";
import type { EngineApi } from "../engine-api.ts";
import { directoryOf, entriesOf, fileOf, type Kept, type KeptDirectory, linkOf } from "./snapshot.ts";

/** All of it is in the memory of this process. */
const SEED_MAX_BYTES = 256 * 1024 * 1024;
const SEED_MAX_ENTRIES = 100_000;
const DEPTH_MAX = 128;
const SKIPPED_TOLD_MAX = 1_000;

export function memoryCheckpoints(engine: EngineApi, fleet: FleetId): Checkpoints {
  const told = ({ onProgress, signal }: LongCall, files: number) => {
    signal.throwIfAborted();
    onProgress?.({ phase: "walking", files, bytes: 0, totalFiles: files });
  };
  return {
    async take(owner, options) {
      const { cause, label, generation, environment, requestId } = options;
      told(options, 0);
      const plain = { cause, generation, environment };
      const named = { ...(label !== undefined && { label }), ...(requestId !== undefined && { requestId }) };
      return engine.checkpoint(fleet, "take", [owner, { ...plain, ...named }]);
    },
    list: (owner) => engine.checkpoint(fleet, "list", [owner]),
    newest: async (owner) => (await engine.checkpoint(fleet, "list", [owner]))[0] ?? null,
    find: (owner, name) => engine.checkpoint(fleet, "find", [owner, name]),
    resolve: (owner, direction) => engine.checkpoint(fleet, "resolve", [owner, direction]),
    async diff(owner, range, options) {
      told(options, 0);
      const { texts, paths, maxChanges } = options;
      const changes = await engine.checkpoint(fleet, "changes", [owner, range, { texts, paths }]);
      const count = (...kinds: string[]) => changes.filter(({ change }) => kinds.includes(change)).length;
      const counts = { added: count("added"), removed: count("removed"), changed: count("changed", "mode", "kind") };
      const found = async (name: string | null) =>
        name === null ? null : (await engine.checkpoint(fleet, "find", [owner, name])).id;
      const [from, to] = [await found(range.from), await found(range.to)];
      return { from, to, changes: changes.slice(0, maxChanges), counts, truncated: changes.length > maxChanges };
    },
    async check(owner, target, budget, call) {
      told(call, 0);
      await engine.checkpoint(fleet, "check", [owner, target, budget]);
    },
    async restore(spot, target, budget, call) {
      told(call, 0);
      return engine.checkpoint(fleet, "restore", [spot, target, budget]);
    },
    outcome: (owner, requestId) => engine.checkpoint(fleet, "outcome", [owner, requestId]),
    // A restore is one step here.
    unfinished: async () => [],
    async seed(source, to, budget, call) {
      told(call, 0);
      if (source.kind === "checkpoint" || source.kind === "thread") {
        if (source.owner.user !== to.user) throw new SandlotError("thread_not_found", { thread: source.owner.thread });
        const checkpoint = source.kind === "checkpoint" ? source.checkpoint : null;
        const root = await engine.checkpoint(fleet, "tree", [source.owner, checkpoint]);
        return engine.checkpoint(fleet, "seed", [to, root, budget, "forked"]);
      }
      const builder = new TreeBuilder(call);
      if (source.kind === "archive") await readArchive(source.content, builder);
      else await readDirectory(source.path, "", builder);
      const seeded = await engine.checkpoint(fleet, "seed", [to, builder.root(), budget, "seeded"]);
      return { ...seeded, skipped: builder.skipped };
    },
    remove: (owner, checkpoint) => engine.checkpoint(fleet, "remove", [owner, checkpoint]),
    async verify(owner, checkpoint, call) {
      const all = await engine.checkpoint(fleet, "list", [owner]);
      const wanted = checkpoint === null ? all : [await engine.checkpoint(fleet, "find", [owner, checkpoint])];
      const damaged: { checkpoint: string; path: string }[] = [];
      for (const { id } of wanted) {
        told(call, wanted.length);
        const root = await engine.checkpoint(fleet, "tree", [owner, id]);
        for (const [path, kept] of entriesOf(root))
          if (kept.kind === "file" && fileOf(kept.bytes, kept.mode, kept.modifiedAt).hash !== kept.hash)
            damaged.push({ checkpoint: id, path });
      }
      return { checked: wanted.length, damaged };
    },
    async *export(owner, checkpoint, call) {
      const root = await engine.checkpoint(fleet, "tree", [owner, checkpoint]);
      yield* archiveOf(root, call);
    },
    collect: async () => undefined,
    usage: (user) => engine.checkpoint(fleet, "usage", [user]),
  };
}

async function* archiveOf(root: KeptDirectory, { signal }: LongCall): AsyncIterable<Uint8Array> {
  const { pack } = await import("tar-stream");
  const archive = pack();
  for (const [path, kept] of entriesOf(root)) {
    const about = { name: path, mode: kept.mode, mtime: dateOf(kept.modifiedAt) };
    if (kept.kind === "file") archive.entry({ ...about, type: "file" }, Buffer.from(kept.bytes));
    else if (kept.kind === "directory") archive.entry({ ...about, type: "directory" });
    else archive.entry({ ...about, type: "symlink", linkname: kept.target });
  }
  archive.finalize();
  try {
    for await (const piece of bytesIn(archive)) {
      signal.throwIfAborted();
      yield piece;
    }
  } finally {
    archive.destroy();
  }
}

async function* bytesIn(stream: AsyncIterable<unknown>): AsyncIterable<Uint8Array> {
  for await (const piece of stream) if (piece instanceof Uint8Array) yield piece;
}

async function readArchive(content: AsyncIterable<Uint8Array>, builder: TreeBuilder): Promise<void> {
  const { extract } = await import("tar-stream");
  const archive = extract();
  const invalid = (error: unknown) => {
    if (error instanceof SandlotError) return error;
    const problem = `it is no tar archive: ${error instanceof Error ? error.message : String(error)}`;
    return new SandlotError("invalid_request", { field: "archive", problem });
  };
  const source = Readable.from(maybeUnzipped(content));
  source.once("error", (error) => archive.destroy(error));
  source.pipe(archive);
  try {
    for await (const entry of archive) {
      const { name, type, mode = 0o644, mtime, linkname } = entry.header;
      const modifiedAt = mtime?.getTime() ?? 0;
      if (type === "file") {
        const pieces: Uint8Array[] = [];
        for await (const piece of bytesIn(entry)) pieces.push(builder.counted(piece));
        builder.add(name, fileOf(Buffer.concat(pieces), mode & 0o777, modifiedAt));
      } else {
        entry.resume();
        if (type === "directory") builder.add(name, directoryOf(new Map(), mode & 0o777, modifiedAt));
        else if (type === "symlink") builder.add(name, linkOf(linkname ?? "", 0o777, modifiedAt));
        else builder.skip(name);
      }
    }
  } catch (error) {
    throw invalid(error);
  } finally {
    source.destroy();
  }
}

async function* maybeUnzipped(content: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array> {
  const pieces = content[Symbol.asyncIterator]();
  const first = await pieces.next();
  if (first.done === true) return;
  const all = async function* () {
    yield first.value;
    yield* { [Symbol.asyncIterator]: () => pieces };
  };
  const isZipped = first.value[0] === 0x1f && first.value[1] === 0x8b;
  if (!isZipped) return yield* all();
  const source = Readable.from(all());
  const unzip = createGunzip();
  source.once("error", (error) => unzip.destroy(error));
  yield* source.pipe(unzip);
}

/** A directory of the host, for operators. */
async function readDirectory(root: string, path: string, builder: TreeBuilder): Promise<void> {
  for (const name of await readdir(join(root, path))) {
    const at = path === "" ? name : `${path}/${name}`;
    const stat = await lstat(join(root, at));
    const mode = stat.mode & 0o777;
    if (stat.isDirectory()) {
      builder.add(at, directoryOf(new Map(), mode, stat.mtimeMs));
      await readDirectory(root, at, builder);
    } else if (stat.isSymbolicLink()) builder.add(at, linkOf(await readlink(join(root, at)), 0o777, stat.mtimeMs));
    else if (stat.isFile())
      builder.add(at, fileOf(builder.counted(await readFile(join(root, at))), mode, stat.mtimeMs));
    else builder.skip(at);
  }
}

interface Building {
  readonly entries: Map<string, Kept | Building>;
  mode: number;
  modifiedAt: number;
}

/** A tree from entries in any order, within limits. */
class TreeBuilder {
  readonly skipped: string[] = [];
  readonly #root: Building = { entries: new Map(), mode: 0o755, modifiedAt: 0 };
  readonly #call: LongCall;
  #bytes = 0;
  #count = 0;

  constructor(call: LongCall) {
    this.#call = call;
  }

  counted(piece: Uint8Array): Uint8Array {
    this.#call.signal.throwIfAborted();
    this.#bytes += piece.byteLength;
    if (this.#bytes > SEED_MAX_BYTES) throw new SandlotError("disk_limit_exceeded", { path: "." });
    return piece;
  }

  skip(path: string): void {
    if (this.skipped.length < SKIPPED_TOLD_MAX) this.skipped.push(path);
  }

  add(name: string, kept: Kept): void {
    this.#count += 1;
    if (this.#count > SEED_MAX_ENTRIES)
      throw new SandlotError("too_many_files", { what: "The archive", max: SEED_MAX_ENTRIES });
    const parts = name.split("/").filter((part) => part !== "" && part !== ".");
    if (parts.length === 0) return;
    if (name.startsWith("/") || parts.includes("..") || parts.length > DEPTH_MAX) {
      this.skip(name);
      return;
    }
    const last = parts.pop() ?? "";
    let directory = this.#root;
    for (const part of parts) {
      const next = directory.entries.get(part);
      // A link or a file where a directory must be is replaced, never followed.
      const below: Building =
        next !== undefined && !("kind" in next) ? next : { entries: new Map(), mode: 0o755, modifiedAt: 0 };
      directory.entries.set(part, below);
      directory = below;
    }
    const present = directory.entries.get(last);
    if (kept.kind !== "directory") directory.entries.set(last, kept);
    else if (present !== undefined && !("kind" in present)) Object.assign(present, pick(kept));
    else directory.entries.set(last, { entries: new Map(), ...pick(kept) });
  }

  root(): KeptDirectory {
    return finished(this.#root);
  }
}

function pick({ mode, modifiedAt }: KeptDirectory): Pick<Building, "mode" | "modifiedAt"> {
  return { mode, modifiedAt };
}

function finished({ entries, mode, modifiedAt }: Building): KeptDirectory {
  const done = new Map<string, Kept>();
  for (const [name, entry] of entries) done.set(name, "kind" in entry ? entry : finished(entry));
  return directoryOf(done, mode, modifiedAt);
}
