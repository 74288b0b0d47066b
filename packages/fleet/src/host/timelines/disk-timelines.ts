/**
 * Timelines on a disk, outside of every sandbox's mounts:
 *
 *   timelines/<threadKey>/b.<offset>                  the first piece of a log; it is dropped like any other
 *   timelines/<threadKey>/p.<offset>                  a later piece, by the offset of its first byte
 *   timelines/<threadKey>/purged.<generation>.<ms>    the thread was purged; forgotten after a day
 *
 * Invariants
 * - Only the holder of the thread's lock changes anything. Readers take no lock: a piece only grows, or goes.
 * - A batch is one write at the end of one piece. A write that fails is taken back.
 * - No path contains user input.
 */

import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmdirSync,
  statSync,
  unlinkSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { open, opendir, readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import type { WorkspaceOwner } from "../../backend/checkpoints.ts";
import { threadKeyOf } from "../../backend/labels.ts";
import {
  encodeLines,
  firstOffset,
  PURGE_REMEMBERED_MS,
  TIMELINE_MAX_BYTES,
  TIMELINE_PIECE_BYTES,
  type TimelineLine,
  type TimelinePurge,
  type Timelines,
  type TimelineText,
} from "../../backend/timelines.ts";
import { errnoOf, isMissing, unlessMissing } from "../../world/disk-trouble.ts";
import type { World } from "../../world/world.ts";
import type { DiskWorkspaces } from "../workspaces/disk-workspaces.ts";

export interface DiskTimelinesParts {
  /** The fleet's directory on the disk of the workspaces. */
  readonly root: string;
  readonly world: Pick<World, "wallMs">;
  /** Runs synchronous work while no other process works on the thread. */
  readonly locked: <T>(owner: WorkspaceOwner, work: () => T) => Promise<T>;
  /** Closes what `locked` needs. */
  readonly close?: () => void;
}

interface Piece {
  readonly name: string;
  readonly offset: number;
  readonly isFirst: boolean;
}

const PIECE = /^([bp])\.(\d{1,16})$/;
const PURGED = /^purged\.(\d{1,16})\.(\d{1,16})$/;
const KEY = /^[0-9a-f]{32}$/;
const { O_WRONLY, O_CREAT, O_APPEND, O_NOFOLLOW, O_RDONLY } = constants;

export class DiskTimelines implements Timelines {
  readonly gatherMs = 200;
  readonly #directory: string;
  readonly #parts: DiskTimelinesParts;

  constructor(parts: DiskTimelinesParts) {
    this.#parts = parts;
    this.#directory = join(parts.root, "timelines");
  }

  /** Under the locks of the workspaces on the same disk. */
  static beside({ restoring }: Pick<DiskWorkspaces, "restoring">, root: string, world: World): DiskTimelines {
    return new DiskTimelines({ root, world, locked: (owner, work) => restoring.locked(owner, work) });
  }

  append(owner: WorkspaceOwner, lines: readonly TimelineLine[]): Promise<void> {
    const directory = this.#of(owner);
    return this.#parts.locked(owner, () => {
      const names = unlessMissing(() => readdirSync(directory)) ?? [];
      const bytes = encodeLines(lines, purgeAmong(names));
      if (bytes.byteLength === 0) return;
      if (names.length === 0) mkdirSync(directory, { recursive: true, mode: 0o700 });
      const pieces = piecesAmong(names);
      const last = pieces.at(-1);
      const size = last === undefined ? 0 : statSync(join(directory, last.name)).size;
      if (last === undefined) write(join(directory, `b.${firstOffset(this.#parts.world.wallMs())}`), bytes);
      else if (size + bytes.byteLength <= TIMELINE_PIECE_BYTES) write(join(directory, last.name), bytes);
      else {
        const offset = last.offset + size;
        const name = `p.${offset}`;
        write(join(directory, name), bytes);
        // Pieces follow one another without a gap, so the space of all of them is a difference of offsets.
        const room = offset + TIMELINE_PIECE_BYTES - TIMELINE_MAX_BYTES;
        for (const piece of pieces)
          if (piece.offset < room) unlessMissing(() => unlinkSync(join(directory, piece.name)));
      }
    });
  }

  async read(owner: WorkspaceOwner, from = 0): Promise<TimelineText | null> {
    const directory = this.#of(owner);
    const pieces = piecesAmong(await namesIn(directory));
    const wanted = pieces.filter((_, index) => (pieces[index + 1]?.offset ?? Number.POSITIVE_INFINITY) > from);
    const parts: Buffer[] = [];
    let first: Piece | null = null;
    for (const piece of wanted) {
      const bytes = await content(join(directory, piece.name));
      if (bytes === null) {
        // Dropped since the directory was read, and everything before it too.
        parts.length = 0;
        first = null;
        continue;
      }
      first ??= piece;
      parts.push(bytes);
    }
    if (first === null) return null;
    return { first: first.offset, bytes: Buffer.concat(parts), isWhole: pieces[0]?.isFirst === true };
  }

  async end(owner: WorkspaceOwner): Promise<number> {
    const directory = this.#of(owner);
    const last = piecesAmong(await namesIn(directory)).at(-1);
    if (last === undefined) return 0;
    try {
      return last.offset + (await stat(join(directory, last.name))).size;
    } catch (error) {
      if (isMissing(error)) return 0;
      throw error;
    }
  }

  purge(owner: WorkspaceOwner, { generation, at }: TimelinePurge): Promise<void> {
    const directory = this.#of(owner);
    return this.#parts.locked(owner, () => {
      if (!existsSync(directory) && !tryMake(directory)) return;
      const mark = `purged.${generation}.${Math.floor(at)}`;
      // The mark comes first: a crash in between leaves a purge to repeat, and no line comes back. On a full disk a name
      // that is there already serves.
      const names = readdirSync(directory);
      const spare = names.find((name) => PURGED.test(name)) ?? names.find((name) => PIECE.test(name));
      if (spare === undefined) writeFileSync(join(directory, mark), "", { mode: 0o600 });
      else renameSync(join(directory, spare), join(directory, mark));
      ftruncated(join(directory, mark));
      for (const name of names)
        if (name !== spare && name !== mark) unlessMissing(() => unlinkSync(join(directory, name)));
    });
  }

  async sweep(): Promise<void> {
    const before = this.#parts.world.wallMs() - PURGE_REMEMBERED_MS;
    let entries: AsyncIterable<{ readonly name: string }>;
    try {
      entries = await opendir(this.#directory);
    } catch (error) {
      if (isMissing(error)) return;
      throw error;
    }
    for await (const { name } of entries) {
      if (!KEY.test(name)) continue;
      const directory = join(this.#directory, name);
      const isOver = (names: readonly string[]) => names.length === 1 && (purgeAmong(names)?.at ?? before) < before;
      if (!isOver(await namesIn(directory))) continue;
      // Looked at again where nothing of this process comes in between. A piece of another one keeps the directory.
      const names = unlessMissing(() => readdirSync(directory)) ?? [];
      if (!isOver(names)) continue;
      for (const mark of names) unlessMissing(() => unlinkSync(join(directory, mark)));
      removeEmpty(directory);
    }
  }

  async close(): Promise<void> {
    this.#parts.close?.();
  }

  #of({ user, thread }: WorkspaceOwner): string {
    return join(this.#directory, threadKeyOf(user, thread));
  }
}

function piecesAmong(names: readonly string[]): readonly Piece[] {
  return names
    .flatMap((name) => {
      const [, kind, offset] = PIECE.exec(name) ?? [];
      return kind === undefined ? [] : [{ name, offset: Number(offset), isFirst: kind === "b" }];
    })
    .sort((one, other) => one.offset - other.offset);
}

function purgeAmong(names: readonly string[]): TimelinePurge | null {
  for (const name of names) {
    const [, generation, at] = PURGED.exec(name) ?? [];
    if (generation !== undefined) return { generation: Number(generation), at: Number(at) };
  }
  return null;
}

/** All bytes, or none: on a full disk a part of them is taken back. */
function write(path: string, bytes: Buffer): void {
  const descriptor = openSync(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0o600);
  try {
    const { size } = fstatSync(descriptor);
    try {
      for (let done = 0; done < bytes.byteLength; ) done += writeSync(descriptor, bytes, done);
    } catch (error) {
      ftruncateSync(descriptor, size);
      throw error;
    }
  } finally {
    closeSync(descriptor);
  }
}

function ftruncated(path: string): void {
  const descriptor = openSync(path, O_WRONLY | O_NOFOLLOW);
  try {
    ftruncateSync(descriptor, 0);
  } finally {
    closeSync(descriptor);
  }
}

/** False on a full disk: a thread without a log has nothing to remove, and its purge must not wait for room. */
function tryMake(directory: string): boolean {
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    return true;
  } catch (error) {
    if (errnoOf(error) === "ENOSPC" || errnoOf(error) === "EDQUOT") return false;
    throw error;
  }
}

function removeEmpty(directory: string): void {
  try {
    rmdirSync(directory);
  } catch (error) {
    if (!isMissing(error) && errnoOf(error) !== "ENOTEMPTY") throw error;
  }
}

async function namesIn(directory: string): Promise<readonly string[]> {
  try {
    return await readdir(directory);
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
}

/** What a piece holds now; `null`: it is gone. */
async function content(path: string): Promise<Buffer | null> {
  try {
    const file = await open(path, O_RDONLY | O_NOFOLLOW);
    try {
      return await file.readFile();
    } finally {
      await file.close();
    }
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
}
