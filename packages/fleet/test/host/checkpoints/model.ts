/**
 * Random edits, checkpoints, restores, undos, redos, forks, purges and collections against a model: a description of
 * each checkpoint's tree, and an editor's line of states. Every sequence follows from its seed.
 */

import {
  chmodSync,
  closeSync,
  constants,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { type Generation, isSandlotError, type SandboxId, type ThreadId, type UserId } from "@sandlot/contract";
import type { WorkspaceSpot } from "../../../src/backend/backend.ts";
import { threadKeyOf } from "../../../src/backend/labels.ts";
import { collect } from "../../../src/host/checkpoints/collect/collect.ts";
import { remove } from "../../../src/host/checkpoints/collect/remove.ts";
import type { Context } from "../../../src/host/checkpoints/context.ts";
import { resolveStep } from "../../../src/host/checkpoints/history.ts";
import { storePathsOf, threadPathsOf } from "../../../src/host/checkpoints/layout.ts";
import { readRecords } from "../../../src/host/checkpoints/records.ts";
import { verify } from "../../../src/host/checkpoints/restore/check.ts";
import { restore } from "../../../src/host/checkpoints/restore/restore.ts";
import { seed as seedThread } from "../../../src/host/checkpoints/seed/seed.ts";
import { take } from "../../../src/host/checkpoints/take/take.ts";
import { unlessMissing } from "../../../src/world/disk-trouble.ts";
import { contextAt } from "./context.ts";
import { treeLines } from "./tree-lines.ts";

const USERS: readonly UserId[] = ["u1" as UserId, "u2" as UserId];
const STEPS = 14;
const NAMES = ["a", "b", "c", "d", "\xff\xfe", "é"];
/** A file of the host, beside all homes, that links in workspaces lead to. */
const OUTSIDE = "outside";
const { O_WRONLY, O_CREAT, O_TRUNC, O_NOFOLLOW } = constants;

interface Thread {
  readonly name: ThreadId;
  readonly user: UserId;
  /** By id. */
  readonly known: Map<string, string>;
  /** The states that undo and redo go through; `null` when a checkpoint was removed from between them. */
  line: { readonly states: string[]; readonly at: number } | null;
  wasForked: boolean;
}

/** Runs sequences; throws where the store and the model differ, with the seed. */
export async function runSequences(root: string, firstSeed: number, count: number, prefix: string): Promise<void> {
  process.umask(0o022);
  const context = contextAt(root);
  writeFileSync(join(root, OUTSIDE), OUTSIDE);
  for (let seed = firstSeed; seed < firstSeed + count; seed++) {
    try {
      await new Sequence(context, seed, `${prefix}${seed}`).run();
    } catch (error) {
      throw new Error(`seed ${seed}: ${error instanceof Error ? error.stack : String(error)}`, { cause: error });
    }
  }
  context.workspaces.close();
}

class Sequence {
  readonly #context: Context;
  readonly #prefix: string;
  readonly #threads: Thread[] = [];
  readonly #purged: Thread[] = [];
  #state: number;
  #made = 0;
  #generation = 1;

  constructor(context: Context, seed: number, prefix: string) {
    this.#context = context;
    this.#prefix = prefix;
    this.#state = (seed * 2_654_435_761) % 2 ** 32 || 1;
  }

  async run(): Promise<void> {
    await this.#make();
    for (let step = 0; step < STEPS; step++) {
      const thread = this.#one(this.#threads) ?? (await this.#make());
      await this.#step(thread);
    }
    for (const thread of [...this.#threads]) {
      const { damaged } = await verify(this.#context, this.#owner(thread), null);
      expectEqual(JSON.stringify(damaged), "[]", "verify");
      const [id, state] = this.#one([...thread.known]) ?? [];
      if (id !== undefined && state !== undefined) await this.#restore(thread, id, "restore", state);
      await this.#purge(thread);
    }
    await this.#expectGone();
    expectEqual(readFileSync(join(this.#context.root, OUTSIDE), "utf8"), OUTSIDE, "a file that links lead to");
  }

  async #step(thread: Thread): Promise<void> {
    const roll = this.#below(20);
    if (roll < 6) for (let edits = 1 + this.#below(4); edits > 0; edits--) this.#edit(thread);
    else if (roll < 10) await this.#take(thread);
    else if (roll < 12) {
      await this.#take(thread);
      const [id, state] = this.#one([...thread.known]) ?? [];
      if (id !== undefined && state !== undefined) await this.#restore(thread, id, "restore", state);
    } else if (roll < 15) await this.#undo(thread, "undo");
    else if (roll < 17) await this.#undo(thread, "redo");
    else if (roll < 18) await this.#fork(thread);
    else if (roll < 19) await this.#remove(thread);
    else if (this.#below(2) === 0 && this.#threads.length > 1) await this.#purge(thread);
    else await this.#collect();
    if (this.#below(3) === 0) await this.#expectClosed(thread);
  }

  /** Another user finds neither the thread nor its checkpoints. */
  async #expectClosed(thread: Thread): Promise<void> {
    const [id = "0".repeat(16)] = this.#one([...thread.known]) ?? [];
    const user = USERS.find((one) => one !== thread.user) ?? ("u3" as UserId);
    const stranger = { user, thread: thread.name };
    expectEqual(
      String(readRecords(threadPathsOf(this.#context.root, user, thread.name).directory).length),
      "0",
      "records",
    );
    for (const source of [
      { kind: "thread", owner: this.#owner(thread) } as const,
      { kind: "checkpoint", owner: this.#owner(thread), checkpoint: id } as const,
      { kind: "checkpoint", owner: stranger, checkpoint: id } as const,
    ]) {
      const outcome = await seedThread(
        this.#context,
        source,
        { user, thread: `${thread.name}-stolen` as ThreadId },
        null,
      ).then(
        () => "read",
        (error: unknown) => (isSandlotError(error) ? error.code : String(error)),
      );
      const expected = source.owner === stranger ? "checkpoint_not_found" : "thread_not_found";
      expectEqual(outcome, expected, "a fork by another user");
    }
  }

  async #make(): Promise<Thread> {
    const thread = this.#thread();
    (await this.#context.workspaces.locate(this.#owner(thread), { make: true }))?.close();
    writeFileSync(join(this.#home(thread), "workspace", "secret"), secretOf(thread));
    return thread;
  }

  #thread(user = this.#one(USERS) ?? ("u1" as UserId)): Thread {
    const name = `${this.#prefix}-${this.#made++}` as ThreadId;
    const thread: Thread = { name, user, known: new Map(), line: { states: [], at: -1 }, wasForked: false };
    this.#threads.push(thread);
    return thread;
  }

  async #take(thread: Thread): Promise<string> {
    const now = treeLines(this.#home(thread));
    const head = this.#records(thread).at(-1);
    const taken = await take(this.#context, this.#owner(thread), {
      ...{ cause: "requested", generation: null, environment: null, writers: "none" },
      ...{ label: null, leftOut: null, verify: this.#below(10) === 0, requestId: null },
    });
    if (taken.kind === "nothing") throw new Error("the thread has files");
    const isSame = head !== undefined && thread.known.get(head.id) === now;
    expectEqual(taken.kind, isSame ? "unchanged" : "taken", "kind of take");
    thread.known.set(taken.checkpoint.id, now);
    this.#push(thread, now);
    return now;
  }

  async #restore(thread: Thread, checkpoint: string, as: "restore" | "undo" | "redo", state: string): Promise<void> {
    const before = treeLines(this.#home(thread));
    const target = { checkpoint, requestId: String(this.#next()), as };
    const { checkpoint: head, safety } = await restore(this.#context, this.#spot(thread), target, null);
    expectEqual(treeLines(this.#home(thread)), state, `${as} of ${checkpoint}`);
    thread.known.set(head.id, state);
    thread.known.set(safety.id, before);
    if (as !== "restore") return;
    this.#push(thread, before);
    this.#push(thread, state);
  }

  async #undo(thread: Thread, direction: "undo" | "redo"): Promise<void> {
    await this.#take(thread);
    const { line } = thread;
    if (line === null) return;
    const at = direction === "undo" ? line.at - 1 : line.at + 1;
    const state = line.states[at];
    let to: string | null = null;
    try {
      to = resolveStep(this.#records(thread), thread.name, direction).id;
    } catch (error) {
      if (!isSandlotError(error, "nothing_to_undo")) throw error;
    }
    expectEqual(to === null ? undefined : thread.known.get(to), state, `where ${direction} goes`);
    if (to === null || state === undefined) return;
    await this.#restore(thread, to, direction, state);
    thread.line = { states: line.states, at };
  }

  async #fork(thread: Thread): Promise<void> {
    const isNow = this.#below(2) === 0;
    const [id, state] = isNow ? [] : (this.#one([...thread.known]) ?? []);
    const fork = this.#thread(thread.user);
    thread.wasForked = true;
    fork.wasForked = true;
    const owner = this.#owner(thread);
    const expected = state ?? treeLines(this.#home(thread));
    const source =
      id === undefined
        ? ({ kind: "thread", owner } as const)
        : ({ kind: "checkpoint", owner, checkpoint: id } as const);
    const { checkpoint } = await seedThread(this.#context, source, this.#owner(fork), null);
    expectEqual(treeLines(this.#home(fork)), expected, "fork");
    fork.known.set(checkpoint.id, expected);
    this.#push(fork, expected);
    const head = this.#records(thread).at(-1);
    if (id === undefined && head !== undefined) {
      thread.known.set(head.id, expected);
      this.#push(thread, expected);
    }
  }

  async #remove(thread: Thread): Promise<void> {
    const [id] = this.#one([...thread.known]) ?? [];
    if (id === undefined) return;
    await remove(this.#context, this.#owner(thread), id);
    thread.known.delete(id);
    thread.line = null;
  }

  async #purge(thread: Thread): Promise<void> {
    await this.#context.workspaces.purge(this.#spot(thread));
    expectEqual(String(this.#records(thread).length), "0", "records of a purged thread");
    this.#threads.splice(this.#threads.indexOf(thread), 1);
    if (!thread.wasForked) this.#purged.push(thread);
  }

  async #collect(): Promise<void> {
    const problems: string[] = [];
    await collect(this.#context, (problem) => problems.push(problem));
    expectEqual(JSON.stringify(problems), "[]", "collect");
  }

  /**
   * What was purged is in no user's store. A collection gives way to takers; one of a few finds the store free.
   */
  async #expectGone(): Promise<void> {
    const holds = () =>
      USERS.some((user) => {
        const { packs } = storePathsOf(this.#context.root, user);
        return (unlessMissing(() => readdirSync(packs)) ?? []).some((name) => {
          const bytes = read(join(packs, name));
          return this.#purged.some((thread) => bytes.includes(secretOf(thread)));
        });
      });
    for (let tries = 0; tries < 50; tries++) {
      await this.#collect();
      if (!holds()) return;
    }
    throw new Error("the bytes of a purged thread are still in the store");
  }

  #push(thread: Thread, state: string): void {
    const { line } = thread;
    if (line === null || line.states[line.at] === state) return;
    thread.line = { states: [...line.states.slice(0, line.at + 1), state], at: line.at + 1 };
  }

  #edit(thread: Thread): void {
    const work = Buffer.from(join(this.#home(thread), "workspace"), "latin1");
    const path = () => {
      const names = Array.from({ length: 1 + this.#below(3) }, () => this.#one(NAMES) ?? "a");
      return Buffer.concat([work, Buffer.from(`/${names.join("/")}`, "latin1")]);
    };
    const edits: (() => void)[] = [
      () => write(path(), String(this.#next())),
      () => write(path(), Buffer.alloc(this.#below(200_000), String(this.#below(10)))),
      () => mkdirSync(path()),
      () => rmSync(path(), { recursive: true, force: true }),
      () => renameSync(path(), path()),
      () => linkSync(path(), path()),
      () => symlinkSync(this.#one(["a", "../b", join(this.#context.root, OUTSIDE), "nowhere"]) ?? "a", path()),
      () => {
        const target = path();
        if (!lstatSync(target).isSymbolicLink()) chmodSync(target, this.#one([0o755, 0o644, 0o700, 0o400]) ?? 0o644);
      },
    ];
    try {
      this.#one(edits)?.();
    } catch (error) {
      // Most random edits do not fit what is there.
      if (!(error instanceof Error) || !("syscall" in error)) throw error;
    }
  }

  #records(thread: Thread) {
    return readRecords(threadPathsOf(this.#context.root, thread.user, thread.name).directory);
  }

  #owner({ name, user }: Thread) {
    return { user, thread: name };
  }

  #spot(thread: Thread): WorkspaceSpot {
    const generation = this.#generation++ as Generation;
    return { ...this.#owner(thread), sandboxId: `s${generation}` as SandboxId, generation, place: "home" };
  }

  #home({ name, user }: Thread): string {
    return join(this.#context.root, "homes", threadKeyOf(user, name), "user-data");
  }

  #one<T>(values: readonly T[]): T | undefined {
    return values[this.#below(values.length)];
  }

  #below(limit: number): number {
    return limit === 0 ? 0 : this.#next() % limit;
  }

  /** Xorshift. */
  #next(): number {
    let state = this.#state;
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    this.#state = state >>> 0;
    return this.#state;
  }
}

function secretOf({ name }: Thread): string {
  return `the secret of <${name}>`;
}

/** Never through a link: it could lead to a file of the host. */
function write(path: Buffer, content: string | Buffer): void {
  const descriptor = openSync(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0o644);
  writeFileSync(descriptor, content);
  closeSync(descriptor);
}

function read(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch {
    // Collected by the other process.
    return Buffer.alloc(0);
  }
}

function expectEqual(actual: string | undefined, expected: string | undefined, what: string): void {
  if (actual === expected) return;
  const [a, b] = [new Set(actual?.split("\n")), new Set(expected?.split("\n"))];
  const only = (these: Set<string>, those: Set<string>) => [...these].filter((line) => !those.has(line)).join("\n  ");
  throw new Error(`${what}: got\n  ${only(a, b)}\nexpected\n  ${only(b, a)}`);
}
