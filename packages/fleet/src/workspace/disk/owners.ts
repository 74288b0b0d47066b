/**
 * Whom a workspace belongs to on disk. All of a fleet's belong to one account, and sandboxes see them as their own. Where a
 * sandbox cannot be shown files like that, the workspace is given to its account instead: the slot of a blank says to which.
 *
 *   slots/<name>/owner     the account, where it is not the fleet's usual one
 *
 * A workspace may come from a time when the usual account was another. Then it is given to whoever needs it next, too.
 *
 *   locks/give-<n>.lock    held while one is given
 *
 * Invariants
 * - Only a workspace that no sandbox has is given to another account, and by one process at a time.
 * - Its root goes last, so that what was interrupted is seen, and done again.
 * - What gives it away ends with the process that wanted it.
 */

import { execFile } from "node:child_process";
import { hash } from "node:crypto";
import { existsSync, fstatSync, lchownSync, lstatSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { SandlotError } from "@sandlot/contract";
import { z } from "zod";
import { openDatabase, troubleOf } from "../../store/sqlite/driver.ts";
import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { Layout } from "./layout.ts";
import type { Account } from "./tree.ts";
import { unlessMissing } from "./trouble.ts";

const run = promisify(execFile);
const OWNER = "owner";
/** A million files take five seconds. */
const GIVE_TIMEOUT_MS = 600_000;
const LOCKS = 16;
const RETRY_MS = 10;
const SETPRIV = "/usr/bin/setpriv";
const ownerSchema = z.object({ uid: z.int(), gid: z.int() });

export class Owners {
  readonly #layout: Layout;
  readonly #usual: Account;
  readonly #world: World;

  constructor(layout: Layout, usual: Account, world: World) {
    this.#layout = layout;
    this.#usual = usual;
    this.#world = world;
  }

  /** Whom a workspace must belong to that is put into a slot; `null` when everything belongs to the fleet's own account. */
  ofSlot(slot: string | null): Account {
    const text = slot === null ? undefined : unlessMissing(() => readFileSync(this.#file(slot), "utf8"));
    return text === undefined ? this.#usual : ownerSchema.parse(JSON.parse(text));
  }

  /** Of a slot that was just made. */
  note(slot: string, owner: Account | undefined): Account {
    if (owner === undefined || owner === null) return this.#usual;
    writeFileSync(this.#file(slot), JSON.stringify(owner), { mode: 0o600 });
    return owner;
  }

  /** Whether a workspace needs not be given to an account. One that is not there needs nothing. */
  isOf(path: string, owner: Account): boolean {
    const stats = owner === null ? undefined : unlessMissing(() => lstatSync(path));
    return owner === null || stats === undefined || (stats.uid === owner.uid && stats.gid === owner.gid);
  }

  /** Gives a workspace to an account that it does not belong to. */
  async give(path: string, owner: Account = this.#usual): Promise<void> {
    if (owner === null || this.isOf(path, owner)) return;
    const { uid, gid } = owner;
    try {
      await this.#alone(path, async () => {
        if (this.isOf(path, owner)) return;
        await giveContent(path, `${uid}:${gid}`);
        lchownSync(path, uid, gid);
      });
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      const problem = `the workspace belongs to another account and cannot be given to uid ${uid}: ${why}`;
      throw new SandlotError("engine_unavailable", {
        engine: "workspaces",
        problem,
        tried: [path],
        retryAfterMs: 1_000,
      });
    }
  }

  /** Not under a lock of `locks.ts`, which is never held while something is waited for. */
  async #alone(path: string, work: () => Promise<void>): Promise<void> {
    const number = hash("sha256", path, "buffer").readUInt32BE() % LOCKS;
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
      await work();
    } finally {
      database.close();
    }
  }

  /** Whom new files in a workspace belong to: like its root. */
  ofDescriptor(descriptor: number): Account {
    if (this.#usual === null) return null;
    const { uid, gid } = fstatSync(descriptor);
    return { uid, gid };
  }

  #file(slot: string): string {
    return join(this.#layout.slot(slot), OWNER);
  }
}

/**
 * Programs of the host: in C, and beside our own work. Links are not followed. Each ends with the one that started it, where
 * there is `setpriv`.
 */
async function giveContent(path: string, owner: string): Promise<void> {
  const endsWithParent = existsSync(SETPRIV) ? [SETPRIV, "--pdeathsig", "KILL", "--"] : [];
  const chown = [...endsWithParent, "chown", "-hR", "--", owner];
  const find = ["find", path, "-mindepth", "1", "-maxdepth", "1", "-exec", ...chown, "{}", "+"];
  const [program = "", ...parameters] = [...endsWithParent, ...find];
  await run(program, parameters, { timeout: GIVE_TIMEOUT_MS });
}
