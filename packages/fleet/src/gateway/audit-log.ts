/**
 * The audit log: one JSON line per request that changed something or was refused, in a file that only the gateway's own
 * account can read. The newest are also in memory, for `GET /v1/audit`.
 *
 * Invariants
 * - An entry names keys by their id, and holds no bodies, paths of files or header values.
 * - Writing never fails a request; an unwritable file is reported, once, through `onProblem`.
 * - Entries are encoded and written together, every `GATHERING_MS`: a write for each would cost a short command a tenth
 *   of its time. A killed gateway loses that much of its file.
 * - The file is bounded: at `FILE_MAX_BYTES` it becomes `audit.1.jsonl`, and the one before that is removed.
 */

import { createWriteStream, type WriteStream } from "node:fs";
import { mkdir, rename, stat } from "node:fs/promises";
import { join } from "node:path";
import type { AuditEntry } from "@sandlot/contract";
import type { Timer, World } from "../world/world.ts";

const HELD_MAX = 5_000;
const FILE_MAX_BYTES = 64 * 1024 * 1024;
const GATHERING_MS = 50;

export class AuditLog {
  readonly #directory: string;
  readonly #onProblem: (error: unknown) => void;
  readonly #held: AuditEntry[] = [];
  readonly #world: Pick<World, "timer">;
  #file: WriteStream | null = null;
  /** Entries not yet written, and the timer that will write them. */
  #gathered: AuditEntry[] = [];
  #writing: Timer | null = null;
  #sizeBytes = 0;
  #rotating: Promise<void> | null = null;
  #failed = false;

  private constructor(directory: string, world: Pick<World, "timer">, onProblem: (error: unknown) => void) {
    this.#directory = directory;
    this.#world = world;
    this.#onProblem = onProblem;
  }

  static async open(home: string, world: Pick<World, "timer">, onProblem: (error: unknown) => void): Promise<AuditLog> {
    const directory = join(home, "audit");
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const log = new AuditLog(directory, world, onProblem);
    await log.#openFile();
    return log;
  }

  add(entry: AuditEntry): void {
    this.#held.push(entry);
    if (this.#held.length > HELD_MAX) this.#held.shift();
    this.#gathered.push(entry);
    this.#writing ??= this.#world.timer(GATHERING_MS, () => this.#write(), { background: true });
  }

  /** The newest first. */
  newest({ limit, user, thread }: { limit: number; user?: string | undefined; thread?: string | undefined }) {
    const found: AuditEntry[] = [];
    for (let index = this.#held.length - 1; index >= 0 && found.length < limit; index -= 1) {
      const entry = this.#held[index];
      if (entry === undefined || (user !== undefined && entry.user !== user)) continue;
      if (thread === undefined || entry.thread === thread) found.push(entry);
    }
    return found;
  }

  async close(): Promise<void> {
    await this.#rotating;
    this.#write();
    await this.#rotating;
    await endOf(this.#file);
  }

  /** Entries that come during a rotation go to the next file; without one, as many as are held. */
  #write(): void {
    this.#writing?.cancel();
    this.#writing = null;
    if (this.#file === null) {
      this.#gathered = this.#gathered.slice(-HELD_MAX);
      this.#rotating ??= this.#rotate();
      return;
    }
    let lines = "";
    for (const entry of this.#gathered) lines += `${JSON.stringify(entry)}\n`;
    this.#gathered = [];
    this.#file.write(lines);
    this.#sizeBytes += lines.length;
    if (this.#sizeBytes > FILE_MAX_BYTES) this.#rotating ??= this.#rotate();
  }

  async #rotate(): Promise<void> {
    const full = this.#file;
    this.#file = null;
    try {
      if (full !== null) {
        await endOf(full);
        await rename(this.#path("audit.jsonl"), this.#path("audit.1.jsonl"));
      }
      await this.#openFile();
      this.#write();
    } catch (error) {
      this.#report(error);
    } finally {
      this.#rotating = null;
    }
  }

  async #openFile(): Promise<void> {
    const file = createWriteStream(this.#path("audit.jsonl"), { flags: "a", mode: 0o600 });
    await new Promise<void>((resolve, reject) => file.once("open", () => resolve()).once("error", reject));
    file.on("error", (error) => this.#report(error));
    this.#sizeBytes = (await stat(this.#path("audit.jsonl"))).size;
    this.#file = file;
  }

  #report(error: unknown): void {
    if (!this.#failed) this.#onProblem(error);
    this.#failed = true;
  }

  #path(name: string): string {
    return join(this.#directory, name);
  }
}

function endOf(file: WriteStream | null): Promise<void> {
  return new Promise((resolve) => {
    if (file === null || file.destroyed) resolve();
    else file.once("close", () => resolve()).end();
  });
}
