/** The calls that the process of a workspaces volume serves. Arguments and results cross a process boundary. */

import { statfs } from "node:fs/promises";
import type { FileStat, WriteOptions } from "@sandlot/contract";
import type { Place, WorkspaceSight, WorkspaceSpot } from "../../../../backend/backend.ts";
import type {
  BranchOutcome,
  HostWorkspaces,
  OpenFile,
  StagedFile,
  WorkspaceFiles,
  WorkspaceKey,
  WorkspaceUsage,
} from "../../../../backend/host-workspaces.ts";
import type { Owner } from "../../../../host/workspaces/homes.ts";
import { hostWorkspaces } from "../../../../host/workspaces/host-workspaces.ts";
import type { CopyLimits } from "../../../../host/workspaces/tree-copy.ts";
import type { VolumeUse } from "./layout.ts";
import { localPlace, type PlaceCall, runPlaceCall } from "./local-place.ts";
import type { VolumeWorkspaces } from "./volume-workspaces.ts";

/** Bytes of a file that one answer carries. */
const PIECE_BYTES = 256 * 1024;

export type Content = AsyncIterable<Uint8Array>;

/** What a request of the gateway keeps open here. */
interface Session {
  readonly files: WorkspaceFiles;
  readonly staged: Map<number, StagedFile>;
  close(): Promise<void>;
}

export class VolumeService {
  readonly #volume: VolumeWorkspaces;
  readonly #host: HostWorkspaces;
  readonly #sessions = new Map<number, Session>();
  readonly #readers = new Map<number, AsyncIterator<Uint8Array>>();
  readonly #opened = new Map<number, OpenFile>();
  #lastId = 0;

  constructor(volume: VolumeWorkspaces) {
    this.#volume = volume;
    this.#host = hostWorkspaces(volume, volume.world);
  }

  look = (spot: WorkspaceSpot): Promise<WorkspaceSight> => this.#volume.look(spot);
  moveIn = (spot: WorkspaceSpot): Promise<void> => this.#volume.moveIn(spot);
  makeIn = (spot: WorkspaceSpot): Promise<void> => this.#volume.makeIn(spot);
  moveHome = (spot: WorkspaceSpot): Promise<void> => this.#volume.moveHome(spot);
  quarantine = (spot: WorkspaceSpot): Promise<void> => this.#volume.quarantine(spot);
  purge = (spot: WorkspaceSpot): Promise<void> => this.#volume.purge(spot);
  owners = (): Promise<readonly Owner[]> => this.#volume.owners();
  latestGeneration = (): Promise<number> => this.#volume.latestGeneration();
  prepareSlot = (slot: string): Promise<void> => this.#volume.prepareSlot(slot);
  fence = (owner: Owner, use: VolumeUse): Promise<"existing" | "new"> => this.#volume.fence(owner, use);
  release = (place: Place): Promise<"dropped" | "occupied"> => this.#volume.release(place);
  isOccupied = (place: Place): Promise<boolean> => this.#volume.isOccupied(place);
  openSlots = (): Promise<readonly string[]> => this.#volume.slots.names("open");
  releasedSlots = (): Promise<readonly string[]> => this.#volume.slots.names("released");

  sweep(knownSlots: readonly string[]): Promise<void> {
    const known = new Set(knownSlots);
    return this.#volume.sweep(async (slot) => known.has(slot));
  }

  async measure(key: WorkspaceKey, maxFiles: number): Promise<WorkspaceUsage | null> {
    return (await this.#host.measure?.(key, maxFiles)) ?? null;
  }

  /** The room on the volume, as its server says. */
  async room(): Promise<{ readonly freeBytes: number; readonly totalBytes: number }> {
    const { bavail, blocks, bsize } = await statfs(this.#volume.layout.root);
    return { freeBytes: bavail * bsize, totalBytes: blocks * bsize };
  }

  async branch(from: WorkspaceKey, to: WorkspaceKey, limits?: CopyLimits): Promise<BranchOutcome> {
    if (this.#host.branch === undefined) throw new Error("workspaces on a volume can be copied");
    return this.#host.branch(from, to, limits);
  }

  async writeFile(key: WorkspaceKey, path: string, options: WriteOptions, content: Content): Promise<FileStat | null> {
    return (await this.#host.writeFile?.(key, path, content, options)) ?? null;
  }

  async openFile(key: WorkspaceKey, path: string): Promise<{ readonly id: number; readonly stat: FileStat } | null> {
    const file = (await this.#host.openFile?.(key, path)) ?? null;
    if (file === null) return null;
    const id = ++this.#lastId;
    this.#opened.set(id, file);
    return { id, stat: file.stat };
  }

  async closeFile(id: number): Promise<void> {
    const file = this.#opened.get(id);
    this.#opened.delete(id);
    await file?.close();
  }

  /** A stream of an opened file. */
  async streamFile(id: number, range?: { readonly offset: number; readonly length: number }): Promise<number> {
    const file = this.#opened.get(id);
    if (file === undefined) throw new Error("the file was closed");
    return this.#reader(file.stream(range));
  }

  /** The files of a thread for the length of one request. */
  async openSession(key: WorkspaceKey): Promise<number> {
    const id = ++this.#lastId;
    const opened = Promise.withResolvers<WorkspaceFiles>();
    const done = Promise.withResolvers<void>();
    const ended = this.#host.use(key, async (files) => {
      opened.resolve(files);
      await done.promise;
    });
    ended.catch(opened.reject);
    const close = () => {
      done.resolve();
      return ended;
    };
    this.#sessions.set(id, { files: await opened.promise, staged: new Map(), close });
    return id;
  }

  async closeSession(id: number): Promise<void> {
    const session = this.#sessions.get(id);
    this.#sessions.delete(id);
    await session?.close();
  }

  stat = async (session: number, path: string): Promise<FileStat | null> => this.#session(session).files.stat(path);
  list = async (session: number, path: string): Promise<readonly FileStat[]> => this.#session(session).files.list(path);
  remove = async (session: number, path: string): Promise<void> => this.#session(session).files.remove(path);

  async read(session: number, path: string, range?: { offset?: number; length?: number }): Promise<number> {
    return this.#reader(this.#session(session).files.read(path, range));
  }

  async write(session: number, path: string, ifVersion: string | null, content: Content): Promise<FileStat> {
    return this.#session(session).files.write(path, content, ifVersion);
  }

  async stage(
    session: number,
    directory: string,
    content: Content,
  ): Promise<{ readonly id: number; readonly sizeBytes: number }> {
    const { files, staged } = this.#session(session);
    const file = await files.stage(directory, content);
    const id = ++this.#lastId;
    staged.set(id, file);
    return { id, sizeBytes: file.sizeBytes };
  }

  place = async (session: number, staged: number, path: string): Promise<FileStat> =>
    this.#staged(session, staged).place(path);
  readStaged = async (session: number, staged: number): Promise<number> =>
    this.#reader(this.#staged(session, staged).read());
  discard = async (session: number, staged: number): Promise<void> => this.#staged(session, staged).discard();

  /** The next bytes of a stream; `null` at its end, after which it is closed. */
  async next(reader: number): Promise<Uint8Array | null> {
    const stream = this.#readers.get(reader);
    if (stream === undefined) return null;
    try {
      const { value, done } = await stream.next();
      if (done !== true) return value;
    } catch (error) {
      this.#readers.delete(reader);
      throw error;
    }
    this.#readers.delete(reader);
    return null;
  }

  async stop(reader: number): Promise<void> {
    const stream = this.#readers.get(reader);
    this.#readers.delete(reader);
    await stream?.return?.();
  }

  /** One call of a trial, on this process's mount. */
  trial = (call: PlaceCall): Promise<unknown> => runPlaceCall(localPlace(this.#volume.layout.root), call);

  #reader(content: AsyncIterable<Uint8Array>): number {
    const id = ++this.#lastId;
    this.#readers.set(id, inPieces(content));
    return id;
  }

  #session(id: number): Session {
    const session = this.#sessions.get(id);
    if (session === undefined) throw new Error("the request's files were closed");
    return session;
  }

  #staged(session: number, id: number): StagedFile {
    const staged = this.#session(session).staged.get(id);
    if (staged === undefined) throw new Error("no such staged file");
    return staged;
  }
}

async function* inPieces(content: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  for await (const chunk of content)
    for (let at = 0; at < chunk.length; at += PIECE_BYTES) yield chunk.subarray(at, at + PIECE_BYTES);
}
