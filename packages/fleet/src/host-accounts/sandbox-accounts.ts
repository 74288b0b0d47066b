/**
 * One account of the host for each sandbox, from the range of its home: what the kernel gives one account (watches, pipes,
 * pending signals, keys, processes) is then one sandbox's alone. No account of these numbers has to exist.
 *
 *   <home>/ids/<uid>/<object>     the sandbox `<object>` has `uid`, and what carries its network has `uid - 1`.
 *                                 In it: where the object is, and who has made the claim
 *
 * Invariants
 * - A directory is made by one process only, so no two sandboxes have the same account, whichever process made them.
 * - An account that something runs as is not given to another sandbox, also when nothing was written down about it: the home
 *   may have been moved away, and begun anew.
 * - An account is given back by its sandbox's own name, and only when nothing of the sandbox runs any more.
 * - A claim whose sandbox is not there, and whose maker has died, is given back at the next start. A maker in another process
 *   namespace, such as that of a container before it was restarted, cannot be looked at: then the claim has to be old.
 */

import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmdirSync,
  statSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { SandlotError } from "@sandlot/contract";
import { z } from "zod";
import type { World } from "../world/world.ts";
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
/** Whoever makes a directory puts the claim in at once. */
const EMPTY_MAX_MS = 60_000;
/** A sandbox's directory is made right after the claim. */
const UNUSED_MAX_MS = 3_600_000;

const claimSchema = z.object({
  path: z.string(),
  maker: z.object({ bootId: z.string(), pidNamespace: z.string(), pid: z.int(), startTime: z.string() }),
});

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
    const uid = this.#take();
    const claim: z.input<typeof claimSchema> = { path, maker: this.#world.identity };
    writeFileSync(join(this.#place(uid), name), JSON.stringify(claim), { mode: 0o600 });
    return { uid, gid: uid };
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

  /** Gives back what killed processes have claimed and not used. */
  sweep(): void {
    const over: { readonly uid: number; readonly name: string }[] = [];
    for (const uid of this.#used()) {
      const names = entriesOf(this.#place(uid));
      for (const name of names) if (this.#isOver(uid, name)) over.push({ uid, name });
      if (names.length === 0) this.#dropEmpty(uid);
    }
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

  #take(): number {
    const look = once(() => {
      this.#running = runningIds();
    });
    if (this.#running === null) look();
    for (let uid = this.#free.pop(); uid !== undefined; uid = this.#free.pop())
      if (this.#tryTake(uid, look)) return uid;
    const accounts = Math.floor(this.range.count / IDS_EACH);
    for (let tries = 0; tries < accounts; tries++) {
      const pair = this.#next;
      this.#next = pair + 2 * IDS_EACH > this.range.first + this.range.count ? this.range.first : pair + IDS_EACH;
      // The one before it is for what carries its network.
      if (this.#tryTake(pair + 1, look)) return pair + 1;
    }
    const problem = `all ${accounts} accounts for sandboxes are in use`;
    const fix = "set accountIds to a larger range, or end sandboxes";
    throw new SandlotError("isolation_unavailable", { backend: this.#backend, problem, fix });
  }

  /** `look` sees again what runs. */
  #tryTake(uid: number, look: () => void): boolean {
    try {
      mkdirSync(this.#place(uid), { mode: 0o700 });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
      throw error;
    }
    if (!isRunning(this.#running, uid)) return true;
    look();
    if (!isRunning(this.#running, uid)) return true;
    rmdirSync(this.#place(uid));
    return false;
  }

  #used(): readonly number[] {
    return entriesOf(this.#directory).map(Number).filter(Number.isInteger);
  }

  #isOver(uid: number, name: string): boolean {
    let text: string;
    try {
      text = readFileSync(join(this.#place(uid), name), "utf8");
    } catch (error) {
      if (isGone(error)) return false;
      throw error;
    }
    const claim = claimSchema.safeParse(parseJson(text));
    // Half-written: whoever was at it was killed, or is at it now.
    if (!claim.success) return this.#isOld(join(this.#place(uid), name), EMPTY_MAX_MS);
    const { path, maker } = claim.data;
    if (existsSync(path)) return false;
    const liveness = this.#world.processLiveness(maker);
    if (liveness !== "unknown") return liveness === "dead";
    // Where the home has another path, nothing is known about the sandbox's.
    return path.startsWith(`${this.#home}/`) && this.#isOld(join(this.#place(uid), name), UNUSED_MAX_MS);
  }

  #dropEmpty(uid: number): void {
    const place = this.#place(uid);
    if (!this.#isOld(place, EMPTY_MAX_MS)) return;
    try {
      rmdirSync(place);
    } catch (error) {
      if (!isGone(error)) throw error;
    }
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

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Removed, or used again, by another process. */
function isGone(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === "ENOENT" || code === "ENOTEMPTY";
}
