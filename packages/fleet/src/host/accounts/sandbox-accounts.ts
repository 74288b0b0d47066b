/**
 * One account of the host for each sandbox, from the range of its home: what the kernel gives one account (watches, pipes,
 * pending signals, keys, processes) is then one sandbox's alone. No account of these numbers has to exist.
 *
 *   <home>/ids/<uid>/<object>     the sandbox `<object>` has `uid`, and what carries its network has `uid - 1`.
 *                                 In it: where the object is, and which process has made the claim
 *   <home>/ids/<draft>/<object>   a claim that is being made
 *
 * Invariants
 * - A claim is written first and then renamed to its number, which fails where another claim is. So no two sandboxes have the
 *   same account, whichever process made them, and every claim names its maker. A directory without a claim claims nothing.
 * - An account that something runs as is not given to another sandbox, also when nothing was written down about it: the home
 *   may have been moved away, and begun anew.
 * - An account is given back by its sandbox's own name, and only when nothing of the sandbox runs any more.
 * - A claim whose maker has died, and whose sandbox is not there, is given back by the next sweep of any fleet of the home. A
 *   maker in another process namespace, such as that of a container before it was restarted, cannot be looked at: then the
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

/** What an account is claimed for. */
export interface Claimant {
  /** Unique, and never used again. */
  readonly name: string;
  /** There as long as anything of the sandbox may be. */
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

/** One for what runs inside, one for what carries its network. */
const IDS_EACH = 2;
/** A claim is whole when it gets its number, unless the machine has lost power meanwhile. */
const UNREADABLE_MAX_MS = 60_000;
/** A sandbox's directory is made right after the claim. */
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
  /** Given back by this process: tried first, so that few numbers are in use. */
  readonly #free: number[] = [];
  /** What runs was last seen when an account of these was about to be taken; `null` until the first. */
  #running: ReadonlySet<number> | null = null;
  /** Where the sandboxes are that the last sweep has seen: while one is there, its claim need not be read again. */
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

  /** Nothing of the sandbox runs any more. An account that it does not have stays as it is. */
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

  /** Gives back what killed processes have claimed and not used. May be called at any time, by any number of processes. */
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
    // Looked at last: from what is over nothing starts any more.
    const running = runningIds();
    for (const { uid, name } of over) if (!isRunning(running, uid)) this.release(name, { uid, gid: uid });
  }

  /** Two homes that have got the same range by chance hardly begin at the same place of it. */
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
      // The one before it is for what carries its network.
      if (this.#tryTake(draft, pair + 1, look)) return pair + 1;
    }
    const problem = `all ${accounts} accounts for sandboxes are in use`;
    const fix = "set accountIds to a larger range, or end sandboxes";
    throw new SandlotError("isolation_unavailable", { backend: this.#backend, problem, fix });
  }

  /** `look` sees again what runs. */
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

  /** Reads the claim of an account: it goes to `seen` when its sandbox is there, and to `over` when it never will be. */
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
    // Asked before its sandbox is looked for: until it had died, it could still make it.
    const liveness = this.#world.processLiveness(maker);
    if (liveness === "alive" || existsSync(path)) return false;
    if (liveness === "dead") return true;
    // Where the home has another path, nothing is known about the sandbox's.
    return path.startsWith(`${this.#home}/`) && this.#isOld(file, UNUSED_MAX_MS);
  }

  /** It claims nothing: its claim was taken out. */
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
 * Why sandboxes share one account; `null` when each has its own. In a container whose root is another user's, most ids do not
 * exist.
 */
export function sharingProblem(accountIds: IdRange | null = null): string | null {
  if (process.getuid?.() !== 0) return "the fleet is not root's, and has the one account it runs as";
  const range = accountIds ?? AUTOMATIC_IDS;
  const areMapped = ["uid_map", "gid_map"].every((file) =>
    isMapped(range, readFileSync(`/proc/self/${file}`, "latin1")),
  );
  return areMapped ? null : `this user namespace does not have the ids from ${range.first} on`;
}

/** Whether one line of a map (`inside outside count`) has the whole range. */
function isMapped({ first, count }: IdRange, map: string): boolean {
  const lines = map
    .trim()
    .split("\n")
    .map((line) => line.trim().split(/\s+/).map(Number));
  return lines.some(([inside = 0, , size = 0]) => first >= inside && first + count <= inside + size);
}

/** Of a fleet's home; `null` where sandboxes share one account. */
export function sandboxAccounts(
  backend: string,
  { home, accountIds, idRegistry }: { home: string; accountIds?: IdRange | null; idRegistry: string },
  world: World,
): SandboxAccounts | null {
  const configured = accountIds ?? null;
  if (sharingProblem(configured) !== null) return null;
  return new SandboxAccounts({ backend, home: realpathSync(home), configured, world, registry: idRegistry });
}

/** What carries a sandbox's network reads what the sandbox sends, so it is somebody else: the account before it. */
export function egressAccountOf({ uid, gid }: Account): Account {
  return { uid: uid - 1, gid: gid - 1 };
}

/** The sandbox, or what carries its network. */
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

/** Another claim is there. */
function isTaken(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === "ENOTEMPTY" || code === "EEXIST";
}

/** Removed, or used again, by another process. */
function isGone(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === "ENOENT" || code === "ENOTEMPTY";
}
