/**
 * User namespaces that say whose files a mount shows as whose: one owner on disk, one account of a sandbox.
 *
 * The kernel takes such a mapping only from a namespace. A short-lived child makes one and root writes its maps; from then on
 * the descriptor alone keeps it. Ids are given out again and again (`sandbox-accounts.ts`), so the namespaces are kept.
 *
 * Invariant: the child ends with the pipe to it, so with this process, however that ends.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, writeFileSync } from "node:fs";
import type { Account } from "./sandbox-accounts.ts";

/** A descriptor each. Beyond these the oldest is made anew when it is needed again: 3 ms. */
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
    // What failed is tried anew the next time.
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
    // What comes back shows that it runs, and so that it has its namespace.
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
