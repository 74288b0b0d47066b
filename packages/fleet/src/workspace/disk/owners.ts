/**
 * Whom a workspace belongs to on disk. All of a fleet's belong to one account, and sandboxes see them as their own. Where a
 * sandbox cannot be shown files like that, the workspace is given to its account instead: the slot of a blank says to which.
 *
 *   slots/<name>/owner     the account, where it is not the fleet's usual one
 *
 * A workspace may come from a time when the usual account was another. Then it is given to whoever needs it next, too.
 *
 * Invariant: only a workspace that no sandbox has is given to another account. Its root goes last, so that what was
 * interrupted is seen, and done again.
 */

import { execFile } from "node:child_process";
import { fstatSync, lstatSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { SandlotError } from "@sandlot/contract";
import { z } from "zod";
import type { Layout } from "./layout.ts";
import type { Account } from "./tree.ts";
import { unlessMissing } from "./trouble.ts";

const run = promisify(execFile);
const OWNER = "owner";
/** A million files take five seconds. */
const GIVE_TIMEOUT_MS = 600_000;
const ownerSchema = z.object({ uid: z.int(), gid: z.int() });

export class Owners {
  readonly #layout: Layout;
  readonly #usual: Account;

  constructor(layout: Layout, usual: Account) {
    this.#layout = layout;
    this.#usual = usual;
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

  /** Gives a workspace to an account that it does not belong to. One that is not there needs nothing. */
  async give(path: string, owner: Account = this.#usual): Promise<void> {
    const stats = owner === null ? undefined : unlessMissing(() => lstatSync(path));
    if (owner === null || stats === undefined || (stats.uid === owner.uid && stats.gid === owner.gid)) return;
    try {
      // A program of the host: in C, and beside our own work. Links are not followed; directories go after what is in them.
      await run("chown", ["-hR", "--", `${owner.uid}:${owner.gid}`, path], { timeout: GIVE_TIMEOUT_MS });
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      const problem = `the workspace belongs to uid ${stats.uid} and cannot be given to uid ${owner.uid}: ${why}`;
      throw new SandlotError("engine_unavailable", {
        engine: "workspaces",
        problem,
        tried: [path],
        retryAfterMs: 1_000,
      });
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
