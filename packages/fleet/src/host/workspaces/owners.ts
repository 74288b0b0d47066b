/**
 * The owners of workspaces on disk. All workspaces of a fleet belong to one account, and sandboxes see them as their
 * own. Where a sandbox does not support id-mapped mounts, the workspace is given to its account instead, which the slot
 * of a blank names.
 *
 *   slots/<name>/owner       the account, where it is not the fleet's usual one
 *   homes/<thread>/giving    the account that the workspace is being given to: a symbolic link, never half written
 *   locks/give-<n>.lock      held while one is given
 *
 * A workspace may come from a time when the usual account was another. Then it is given to the account that needs it
 * next, too.
 *
 * Invariants
 * - Only a workspace without a sandbox is given to another account, by one process at a time.
 * - `giving` exists before the first file changes its owner and until the last has. A workspace with it has mixed
 *   owners: it is not moved, and the next sandbox's account gets all of it, whatever the owner of its root.
 * - `giving` is created and read under the thread's lock, so a workspace is either moved or given.
 * - The programs that change owners end with the process that started them.
 */

import { execFile } from "node:child_process";
import { hash } from "node:crypto";
import {
  existsSync,
  fstatSync,
  lchownSync,
  readFileSync,
  readlinkSync,
  renameSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { SandlotError, type ThreadKey } from "@sandlot/contract";
import { z } from "zod";
import { statIfThere, unlessMissing } from "../../world/disk-trouble.ts";
import { openDatabase, troubleOf } from "../../world/sqlite-driver.ts";
import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { Homes } from "./homes.ts";
import { GIVING, type Layout } from "./layout.ts";
import type { DiskLocks } from "./locks.ts";
import { type Account, isSame } from "./tree.ts";

const run = promisify(execFile);
const OWNER = "owner";
/** A million files take five seconds. */
const GIVE_TIMEOUT_MS = 600_000;
const LOCKS = 16;
const RETRY_MS = 10;
const SETPRIV = "/usr/bin/setpriv";
const ownerSchema = z.object({ uid: z.int(), gid: z.int() });

interface OwnerParts {
  readonly layout: Layout;
  readonly homes: Homes;
  readonly locks: DiskLocks;
  readonly world: World;
  /** The usual owner of workspaces. */
  readonly account: Account;
}

export class Owners {
  readonly #layout: Layout;
  readonly #homes: Homes;
  readonly #locks: DiskLocks;
  readonly #usual: Account;
  readonly #world: World;

  constructor({ layout, homes, locks, world, account }: OwnerParts) {
    this.#layout = layout;
    this.#homes = homes;
    this.#locks = locks;
    this.#usual = account;
    this.#world = world;
  }

  /** The required owner of a workspace in a slot; `null` when everything belongs to the fleet's own account. */
  ofSlot(slot: string | null): Account {
    const text = slot === null ? undefined : unlessMissing(() => readFileSync(this.#file(slot), "utf8"));
    return text === undefined ? this.#usual : ownerSchema.parse(JSON.parse(text));
  }

  /** Records the owner of a slot that was just created. */
  note(slot: string, owner: Account | undefined): Account {
    if (owner === undefined || owner === null) return this.#usual;
    writeFileSync(this.#file(slot), JSON.stringify(owner), { mode: 0o600 });
    return owner;
  }

  /** Whether the whole workspace at home belongs to an account. A missing one needs nothing. */
  isOf(thread: ThreadKey, owner: Account): boolean {
    if (owner === null) return true;
    if (this.isGiving(thread)) return false;
    const stats = statIfThere(this.#layout.userData(thread));
    return stats === undefined || isSame(stats, owner);
  }

  /** Whether its change of owner is running or was interrupted. The answer is valid while the thread's lock is held. */
  isGiving(thread: ThreadKey): boolean {
    return this.#givenTo(thread) !== null;
  }

  /** Gives the workspace at home to an account, if needed. `check` runs first, under the thread's lock. */
  async give(thread: ThreadKey, owner: Account = this.#usual, check: () => void = () => {}): Promise<void> {
    if (owner === null || this.isOf(thread, owner)) return;
    const path = this.#layout.userData(thread);
    try {
      await this.alone(thread, async () => {
        const begin = () => {
          check();
          const isNeeded = !this.isOf(thread, owner);
          if (isNeeded) this.#begin(thread, owner);
          return isNeeded;
        };
        if (!(await this.#locks.hold([thread], begin))) return;
        await this.#homes.sync(thread);
        await giveContent(path, `${owner.uid}:${owner.gid}`);
        lchownSync(path, owner.uid, owner.gid);
        unlinkSync(this.#giving(thread));
      });
    } catch (error) {
      if (error instanceof SandlotError) throw error;
      const why = error instanceof Error ? error.message : String(error);
      const problem = `the workspace belongs to another account and cannot be given to uid ${owner.uid}: ${why}`;
      throw new SandlotError("engine_unavailable", {
        engine: "workspaces",
        problem,
        tried: [path],
        retryAfterMs: 1_000,
      });
    }
  }

  /** While no other process gives the workspace. No lock of `locks.ts`: those are not held across an `await`. */
  async alone<T>(thread: ThreadKey, work: () => Promise<T>): Promise<T> {
    const number = hash("sha256", thread, "buffer").readUInt32BE() % LOCKS;
    const database = openDatabase(join(this.#layout.locks, `give-${number}.lock`));
    const deadline = this.#world.monotonicMs() + GIVE_TIMEOUT_MS;
    try {
      database.exec("PRAGMA busy_timeout = 0; PRAGMA journal_mode = MEMORY");
      for (;;) {
        try {
          database.exec("BEGIN IMMEDIATE");
          break;
        } catch (error) {
          if (troubleOf(error)?.kind !== "busy" || this.#world.monotonicMs() > deadline) throw error;
        }
        await sleep(this.#world, RETRY_MS);
      }
      return await work();
    } finally {
      database.close();
    }
  }

  /** The current owner of new files in a workspace: its root's, or the account that it is being given to. */
  ofFiles(thread: ThreadKey, descriptor: number): Account {
    if (this.#usual === null) return null;
    // In this order: the root has its new owner before `giving` is removed.
    const givenTo = this.#givenTo(thread);
    if (givenTo !== null) return givenTo;
    const { uid, gid } = fstatSync(descriptor);
    return { uid, gid };
  }

  /** A rename replaces a killed process's link without a gap. */
  #begin(thread: ThreadKey, { uid, gid }: NonNullable<Account>): void {
    const draft = `${this.#giving(thread)}.draft`;
    unlessMissing(() => unlinkSync(draft));
    symlinkSync(`${uid}:${gid}`, draft);
    renameSync(draft, this.#giving(thread));
  }

  #givenTo(thread: ThreadKey): Account {
    const text = unlessMissing(() => readlinkSync(this.#giving(thread)));
    if (text === undefined) return null;
    const [uid, gid] = text.split(":").map(Number);
    return ownerSchema.parse({ uid, gid });
  }

  #giving(thread: ThreadKey): string {
    return join(this.#layout.home(thread), GIVING);
  }

  #file(slot: string): string {
    return join(this.#layout.slot(slot), OWNER);
  }
}

/**
 * Programs of the host, in C, which run beside our own work. They follow no links. With `setpriv`, each ends with its
 * parent.
 */
async function giveContent(path: string, owner: string): Promise<void> {
  const endsWithParent = existsSync(SETPRIV) ? [SETPRIV, "--pdeathsig", "KILL", "--"] : [];
  const chown = [...endsWithParent, "chown", "-hR", "--", owner];
  const find = ["find", path, "-mindepth", "1", "-maxdepth", "1", "-exec", ...chown, "{}", "+"];
  const [program = "", ...parameters] = [...endsWithParent, ...find];
  await run(program, parameters, { timeout: GIVE_TIMEOUT_MS });
}
