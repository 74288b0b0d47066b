/**
 * One account of the host per sandbox, from the range of its home. So the kernel's per-account limits (watches, pipes,
 * pending signals, keys, processes) are separate for each sandbox. These accounts need no entry in `/etc/passwd`.
 *
 *   <home>/ids/<uid>/<object>     the sandbox `<object>` has `uid`, and its egress process has `uid - 1`.
 *                                 In it: the path of the object, and the process that made the claim
 *   <home>/ids/<draft>/<object>   a claim in preparation
 *
 * Invariants
 * - A claim is written first and then renamed to its number, which fails where another claim is. So two sandboxes never
 *   have the same account, also from different processes, and every claim names its maker. A directory without a claim
 *   claims nothing.
 * - An account with running processes is not given to another sandbox, even without a claim: the home may have been
 *   moved away and started again.
 * - An account is released by its sandbox's own name, and only when nothing of the sandbox runs any more.
 * - The next sweep of any fleet of the home releases a claim whose maker has died and whose sandbox does not exist. The
 *   liveness of a maker in another process namespace, such as a container before its restart, is unknown: then the
 *   claim has to be old.
 */

import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmdirSync,
  rmSync,
  statSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { SandlotError } from "@sandlot/contract";
import { z } from "zod";
import { draftName, isAbandoned, isDraft } from "../../world/drafts.ts";
import { tryJson } from "../../world/try-json.ts";
import type { World } from "../../world/world.ts";
import { homeNumber } from "./home-number.ts";
import { AUTOMATIC_IDS, type IdRange, reserveRange } from "./id-range.ts";
import { runningIds } from "./running-ids.ts";

export interface Account {
  readonly uid: number;
  readonly gid: number;
}

/** The object that an account is claimed for. */
export interface Claimant {
  /** Unique, and never reused. */
  readonly name: string;
  /** Exists as long as anything of the sandbox may exist. */
  readonly path: string;
}

export interface AccountOptions {
  /** With links resolved. */
  readonly home: string;
  readonly configured: IdRange | null;
  readonly backend: string;
  readonly world: World;
  readonly registry?: string | undefined;
}

/** One for the processes inside, one for the egress process. */
const IDS_EACH = 2;
/** A claim is complete when it gets its number, unless the machine lost power meanwhile. */
const UNREADABLE_MAX_MS = 60_000;
/** A sandbox's directory is created right after the claim. */
const UNUSED_MAX_MS = 3_600_000;

const claimSchema = z.object({
  path: z.string(),
  maker: z.object({ bootId: z.string(), pidNamespace: z.string(), pid: z.int(), startTime: z.string() }),
});
type Claim = z.infer<typeof claimSchema>;

export class SandboxAccounts {
  readonly range: IdRange;
  readonly #home: string;
  readonly #directory: string;
  readonly #world: World;
  readonly #backend: string;
  /** Released by this process: reused first, so that few numbers are in use. */
  readonly #free: number[] = [];
  /** The running accounts, last read when one of them was about to be claimed; `null` until the first read. */
  #running: ReadonlySet<number> | null = null;
  /** Paths of the sandboxes that the last sweep found: while one exists, its claim need not be read again. */
  #seen: ReadonlyMap<number, string> = new Map();
  #next: number;

  /** Throws `config_invalid` when the range overlaps another home's. */
  constructor({ home, configured, backend, world, registry }: AccountOptions) {
    this.#home = home;
    this.#directory = join(home, "ids");
    this.#world = world;
    this.#backend = backend;
    mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
    const number = homeNumber(this.#directory);
    this.range = reserveRange({ home, configured, number, registry });
    this.#next = configured === null ? this.#startAt(number) : this.range.first;
  }

  /** An account that no other sandbox of the home has. */
  claim({ name, path }: Claimant): Account {
    const draft = join(this.#directory, draftName(this.#world));
    const claim: Claim = { path, maker: this.#world.identity };
    try {
      mkdirSync(draft, { mode: 0o700 });
      writeFileSync(join(draft, name), JSON.stringify(claim), { mode: 0o600 });
      const uid = this.#take(draft);
      return { uid, gid: uid };
    } catch (error) {
      rmSync(draft, { recursive: true, force: true });
      throw error;
    }
  }

  /** Nothing of the sandbox runs any more. An account that the sandbox does not own is left alone. */
  release(name: string, { uid }: Account): void {
    try {
      unlinkSync(join(this.#place(uid), name));
      rmdirSync(this.#place(uid));
    } catch (error) {
      if (isGone(error)) return;
      throw error;
    }
    if (uid >= this.range.first && uid < this.range.first + this.range.count) this.#free.push(uid);
  }

  /** Releases claims that killed processes made and did not use. Any number of processes may call it at any time. */
  sweep(): void {
    const entries = entriesOf(this.#directory);
    for (const entry of entries.filter(isDraft)) this.#dropDraft(entry);
    const seen = new Map<number, string>();
    const over: { readonly uid: number; readonly name: string }[] = [];
    for (const uid of entries.map(Number).filter(Number.isInteger)) {
      const path = this.#seen.get(uid) ?? null;
      if (path !== null && existsSync(path)) seen.set(uid, path);
      else this.#look(uid, seen, over);
    }
    this.#seen = seen;
    if (over.length === 0) return;
    // Read last: a sandbox that is over starts no new process.
    const running = runningIds();
    for (const { uid, name } of over) if (!isRunning(running, uid)) this.release(name, { uid, gid: uid });
  }

  /** Different starting points make a collision unlikely for two homes that got the same range by chance. */
  #startAt(number: number): number {
    const { first, count } = this.range;
    return first + IDS_EACH * (Math.floor(number / count) % Math.floor(count / IDS_EACH));
  }

  #take(draft: string): number {
    const look = once(() => {
      this.#running = runningIds();
    });
    if (this.#running === null) look();
    for (let uid = this.#free.pop(); uid !== undefined; uid = this.#free.pop())
      if (this.#tryTake(draft, uid, look)) return uid;
    const accounts = Math.floor(this.range.count / IDS_EACH);
    for (let tries = 0; tries < accounts; tries++) {
      const pair = this.#next;
      this.#next = pair + 2 * IDS_EACH > this.range.first + this.range.count ? this.range.first : pair + IDS_EACH;
      // The id before it is for the egress process.
      if (this.#tryTake(draft, pair + 1, look)) return pair + 1;
    }
    const problem = `all ${accounts} accounts for sandboxes are in use`;
    const fix = "set accountIds to a larger range, or end sandboxes";
    throw new SandlotError("isolation_unavailable", { backend: this.#backend, problem, fix });
  }

  /** `look` reads the running accounts again. */
  #tryTake(draft: string, uid: number, look: () => void): boolean {
    try {
      renameSync(draft, this.#place(uid));
    } catch (error) {
      if (isTaken(error)) return false;
      throw error;
    }
    if (!isRunning(this.#running, uid)) return true;
    look();
    if (!isRunning(this.#running, uid)) return true;
    renameSync(this.#place(uid), draft);
    return false;
  }

  /** Reads the claim of an account. It goes to `seen` when its sandbox exists, and to `over` when it never will. */
  #look(uid: number, seen: Map<number, string>, over: { uid: number; name: string }[]): void {
    const names = entriesOf(this.#place(uid));
    if (names.length === 0) this.#dropEmpty(uid);
    for (const name of names) {
      const claim = this.#read(uid, name);
      if (claim === "gone") continue;
      if (this.#isOver(claim, join(this.#place(uid), name))) over.push({ uid, name });
      else if (claim !== null && existsSync(claim.path)) seen.set(uid, claim.path);
    }
  }

  /** `null` when it cannot be read. */
  #read(uid: number, name: string): Claim | "gone" | null {
    try {
      const text = readFileSync(join(this.#place(uid), name), "utf8");
      return claimSchema.safeParse(tryJson(text)).data ?? null;
    } catch (error) {
      if (isGone(error)) return "gone";
      throw error;
    }
  }

  #isOver(claim: Claim | null, file: string): boolean {
    if (claim === null) return this.#isOld(file, UNREADABLE_MAX_MS);
    const { path, maker } = claim;
    // Checked before the sandbox's path: until the maker has died, it may still create the sandbox.
    const liveness = this.#world.processLiveness(maker);
    if (liveness === "alive" || existsSync(path)) return false;
    if (liveness === "dead") return true;
    // If the home has another path, the sandbox's path says nothing.
    return path.startsWith(`${this.#home}/`) && this.#isOld(file, UNUSED_MAX_MS);
  }

  /** Removes an account's directory whose claim is gone. */
  #dropEmpty(uid: number): void {
    try {
      rmdirSync(this.#place(uid));
    } catch (error) {
      if (!isGone(error)) throw error;
    }
  }

  #dropDraft(entry: string): void {
    const path = join(this.#directory, entry);
    const modifiedAt = statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? this.#world.wallMs();
    if (isAbandoned(entry, modifiedAt, this.#world)) rmSync(path, { recursive: true, force: true });
  }

  #isOld(path: string, maxMs: number): boolean {
    const stats = statSync(path, { throwIfNoEntry: false });
    return stats !== undefined && this.#world.wallMs() - stats.mtimeMs > maxMs;
  }

  #place(uid: number): string {
    return join(this.#directory, String(uid));
  }
}

/**
 * Why sandboxes share one account; `null` when each has its own. In a container whose root is an ordinary user, most
 * ids do not exist.
 */
export function sharingProblem(accountIds: IdRange | null = null): string | null {
  if (process.getuid?.() !== 0) return "the fleet is not root's, and has the one account it runs as";
  const range = accountIds ?? AUTOMATIC_IDS;
  const areMapped = ["uid_map", "gid_map"].every((file) =>
    isMapped(range, readFileSync(`/proc/self/${file}`, "latin1")),
  );
  return areMapped ? null : `this user namespace does not have the ids from ${range.first} on`;
}

/** Whether one line of a map (`inside outside count`) covers the whole range. */
function isMapped({ first, count }: IdRange, map: string): boolean {
  const lines = map
    .trim()
    .split("\n")
    .map((line) => line.trim().split(/\s+/).map(Number));
  return lines.some(([inside = 0, , size = 0]) => first >= inside && first + count <= inside + size);
}

/** The accounts of a fleet's home; `null` where sandboxes share one account. */
export function sandboxAccounts(
  backend: string,
  { home, accountIds, idRegistry }: { home: string; accountIds?: IdRange | null; idRegistry: string },
  world: World,
): SandboxAccounts | null {
  const configured = accountIds ?? null;
  if (sharingProblem(configured) !== null) return null;
  return new SandboxAccounts({ backend, home: realpathSync(home), configured, world, registry: idRegistry });
}

/** The egress process reads what the sandbox sends, so it has an account of its own: the one before the sandbox's. */
export function egressAccountOf({ uid, gid }: Account): Account {
  return { uid: uid - 1, gid: gid - 1 };
}

/** The sandbox, or its egress process. */
function isRunning(running: ReadonlySet<number> | null, uid: number): boolean {
  return running !== null && (running.has(uid) || running.has(uid - 1));
}

function once(work: () => void): () => void {
  let isDone = false;
  return () => {
    if (!isDone) work();
    isDone = true;
  };
}

function entriesOf(directory: string): readonly string[] {
  try {
    return readdirSync(directory);
  } catch (error) {
    if (isGone(error)) return [];
    throw error;
  }
}

/** Another claim has the number. */
function isTaken(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === "ENOTEMPTY" || code === "EEXIST";
}

/** Another process removed or reused it. */
function isGone(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === "ENOENT" || code === "ENOTEMPTY";
}
