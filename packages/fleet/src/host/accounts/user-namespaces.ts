/**
 * User namespaces for id-mapped mounts: each maps one owner on disk to one account of a sandbox.
 *
 * The kernel takes such a mapping only from a namespace. A short-lived child creates one and root writes its maps; from
 * then on the descriptor alone keeps it alive. Accounts are reused (`sandbox-accounts.ts`), so the namespaces are
 * cached.
 *
 * Invariant: the child ends when its pipe closes, so it never outlives this process.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, writeFileSync } from "node:fs";
import type { Account } from "./sandbox-accounts.ts";

/** One descriptor each. Beyond these the oldest is closed and recreated when needed: 3 ms. */
const KEPT_MAX = 256;

export class UserNamespaces {
  readonly #kept = new Map<string, Promise<number>>();

  /** A descriptor of a namespace that maps `owner` to `account`; the caller closes it. */
  async open(owner: Account, account: Account): Promise<number> {
    return openSync(`/proc/self/fd/${await this.#get(owner, account)}`, "r");
  }

  close(): void {
    for (const key of [...this.#kept.keys()]) this.#drop(key);
  }

  #get(owner: Account, account: Account): Promise<number> {
    const key = [owner.uid, owner.gid, account.uid, account.gid].join(":");
    const known = this.#kept.get(key);
    if (known !== undefined) return known;
    const made = makeNamespace(owner, account);
    this.#kept.set(key, made);
    // A failure is not cached.
    made.catch(() => this.#kept.get(key) === made && this.#kept.delete(key));
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > KEPT_MAX && oldest !== undefined) this.#drop(oldest);
    return made;
  }

  #drop(key: string): void {
    const made = this.#kept.get(key);
    this.#kept.delete(key);
    made?.then(closeSync, () => {});
  }
}

async function makeNamespace(owner: Account, account: Account): Promise<number> {
  const child = spawn("unshare", ["--user", "--", "cat"], { stdio: ["pipe", "pipe", "ignore"], cwd: "/", env: ENV });
  const ended = new Promise<never>((_, reject) => {
    child.once("error", reject);
    child.once("exit", () => reject(new Error("no user namespace can be made (unshare --user)")));
  });
  ended.catch(() => {});
  child.stdin.on("error", () => {});
  try {
    // The echoed byte shows that the child runs, and so that it has its namespace.
    child.stdin.write("\n");
    await Promise.race([once(child.stdout, "data"), ended]);
    writeFileSync(`/proc/${child.pid}/uid_map`, `${owner.uid} ${account.uid} 1\n`);
    writeFileSync(`/proc/${child.pid}/gid_map`, `${owner.gid} ${account.gid} 1\n`);
    return openSync(`/proc/${child.pid}/ns/user`, "r");
  } finally {
    child.stdin.destroy();
    child.stdout.destroy();
    child.kill("SIGKILL");
  }
}

const ENV = { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" };
