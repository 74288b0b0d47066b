/**
 * Commits of one process, several in one round trip where several are waiting.
 *
 *   under way   [commit commit commit]  [commit commit]
 *   in line     commit commit commit …                    the next that comes free takes them all
 *
 * Joined commits are one commit at the server: it checks the reads of all and applies the writes of all, or nothing. Each
 * is answered by itself all the same.
 *
 * Invariants
 * - A lone commit is sent as it is, in the turn in which it came. So gathering makes none wait that could have been sent.
 * - Commits are joined only where their order cannot matter: none writes a row that another one reads, and all know
 *   the same number of a row that several read.
 * - Where joined commits cannot all be answered from one answer, nothing was applied, and those that are concerned are
 *   sent alone. Those that a conflict of others held up go first in the next round trip.
 * - A commit whose caller gives up before it was sent is never sent. A round trip that all its callers have given up is
 *   aborted.
 * - What is under way for longer than `PATIENCE_MS` holds up no other commit: a server may wait there for a lock.
 */

import { nextTurn } from "../../world/system-world.ts";
import type { Timer, World } from "../../world/world.ts";
import type { Commit, CommitAnswer, RowKey } from "./row-server.ts";

/** A commit under the ids of all commits that were joined to it. */
export interface JoinedCommit extends Omit<Commit, "id"> {
  readonly ids: readonly string[];
}

/** `split`: nothing was applied, and each must be sent alone. A single commit is never answered so. */
export type JoinedAnswer = CommitAnswer | { readonly kind: "split" };

export interface CommitGathererOptions {
  readonly world: World;
  readonly send: (commit: JoinedCommit, signal: AbortSignal) => Promise<JoinedAnswer>;
  /** Why a call ends that its caller gave up. */
  readonly gaveUp: () => Error;
}

/** One is prepared here while the server works on the other. */
const UNDER_WAY_MAX = 2;
const PATIENCE_MS = 20;
const MEMBERS_MAX = 32;
/** Rows of joined commits. PostgreSQL locks each row of a commit of so many, and all rows for a larger one. */
const ROWS_MAX = 64;
const BODY_CHARS_MAX = 256 * 1_024;

interface Member {
  readonly commit: Commit;
  readonly signal: AbortSignal;
  readonly resolve: (answer: CommitAnswer) => void;
  readonly reject: (error: unknown) => void;
  readonly onAbort: () => void;
  group: Group | null;
  mustGoAlone: boolean;
  isOver: boolean;
}

interface Group {
  /** Callers that still wait. */
  waiting: number;
  readonly controller: AbortController;
}

export class CommitGatherer {
  readonly #options: CommitGathererOptions;
  #line: Member[] = [];
  #underWay = 0;
  #isTurnComing = false;
  #patience: Timer | null = null;

  constructor(options: CommitGathererOptions) {
    this.#options = options;
  }

  commit(commit: Commit, signal: AbortSignal): Promise<CommitAnswer> {
    if (signal.aborted) return Promise.reject(this.#options.gaveUp());
    return new Promise((resolve, reject) => {
      const onAbort = () => this.#giveUp(member);
      const state = { group: null, mustGoAlone: false, isOver: false };
      const member: Member = { commit, signal, resolve, reject, onAbort, ...state };
      signal.addEventListener("abort", onAbort, { once: true });
      this.#line.push(member);
      this.#sendSoon();
    });
  }

  /** In the next turn, when all callers that an answer has woken have come back. */
  #sendSoon(): void {
    if (this.#isTurnComing || this.#line.length === 0) return;
    if (this.#underWay >= UNDER_WAY_MAX) {
      this.#patience ??= this.#options.world.timer(PATIENCE_MS, () => this.#losePatience());
      return;
    }
    this.#isTurnComing = true;
    void nextTurn().then(() => {
      this.#isTurnComing = false;
      this.#sendLine();
    });
  }

  #losePatience(): void {
    this.#patience = null;
    this.#sendGroup();
    this.#sendSoon();
  }

  #sendLine(): void {
    while (this.#line.length > 0 && this.#underWay < UNDER_WAY_MAX) this.#sendGroup();
    this.#sendSoon();
  }

  #sendGroup(): void {
    const members = this.#takeFromLine();
    if (members.length === 0) return;
    this.#underWay += 1;
    void this.#send(members).finally(() => {
      this.#underWay -= 1;
      this.#patience?.cancel();
      this.#patience = null;
      this.#sendSoon();
    });
  }

  /** The first in line, and those that can be joined to it. */
  #takeFromLine(): readonly Member[] {
    const taken: Member[] = [];
    const left: Member[] = [];
    const union = new Union();
    for (const member of this.#line) {
      if (member.isOver) continue;
      const [first] = taken;
      if (first === undefined || (!first.mustGoAlone && !member.mustGoAlone && union.canJoin(member.commit))) {
        union.join(member.commit);
        taken.push(member);
      } else left.push(member);
    }
    this.#line = left;
    return taken;
  }

  /** Never rejects: each member gets its own answer or error. */
  async #send(members: readonly Member[]): Promise<void> {
    const [first] = members;
    if (first === undefined) return;
    try {
      if (members.length === 1) {
        const { id, ...commit } = first.commit;
        const answer = await this.#options.send({ ...commit, ids: [id] }, first.signal);
        if (answer.kind === "split") throw new Error("A single commit cannot be split.");
        this.#end(first, () => first.resolve(answer));
        return;
      }
      const group: Group = { waiting: members.length, controller: new AbortController() };
      for (const member of members) member.group = group;
      this.#answer(members, await this.#options.send(joined(members), group.controller.signal));
    } catch (error) {
      for (const member of members) this.#end(member, () => member.reject(error));
    }
  }

  #answer(members: readonly Member[], answer: JoinedAnswer): void {
    const again: Member[] = [];
    for (const member of members) {
      if (member.isOver) continue;
      member.group = null;
      if (answer.kind === "committed" || answer.kind === "new-epoch") this.#end(member, () => member.resolve(answer));
      else if (answer.kind === "conflict") {
        const rows = answer.rows.filter(({ key }) => member.commit.reads.has(key));
        if (rows.length > 0) this.#end(member, () => member.resolve({ ...answer, rows }));
        else again.push(member);
      } else {
        member.mustGoAlone = true;
        again.push(member);
      }
    }
    this.#line = [...again, ...this.#line];
  }

  #giveUp(member: Member): void {
    this.#end(member, () => member.reject(this.#options.gaveUp()));
    const { group } = member;
    if (group === null) return;
    group.waiting -= 1;
    if (group.waiting === 0) group.controller.abort();
  }

  #end(member: Member, tell: () => void): void {
    if (member.isOver) return;
    member.isOver = true;
    member.signal.removeEventListener("abort", member.onAbort);
    tell();
  }
}

/** What a group reads and writes so far. */
class Union {
  readonly #reads = new Map<RowKey, number>();
  readonly #written = new Set<RowKey>();
  #members = 0;
  #chars = 0;
  #like: Pick<Commit, "epoch" | "isDurable"> | null = null;

  canJoin({ epoch, isDurable, reads, writes }: Commit): boolean {
    if (this.#members >= MEMBERS_MAX || this.#like?.epoch !== epoch || this.#like.isDurable !== isDurable) return false;
    if (this.#chars + charsOf(writes) > BODY_CHARS_MAX) return false;
    let rows = this.#reads.size;
    for (const [key, seq] of reads) {
      const known = this.#reads.get(key);
      if (known === undefined) rows += 1;
      else if (known !== seq || writes.has(key) || this.#written.has(key)) return false;
    }
    return rows <= ROWS_MAX;
  }

  join({ epoch, isDurable, reads, writes }: Commit): void {
    this.#members += 1;
    this.#chars += charsOf(writes);
    this.#like = { epoch, isDurable };
    for (const [key, seq] of reads) this.#reads.set(key, seq);
    for (const key of writes.keys()) this.#written.add(key);
  }
}

function charsOf(writes: Commit["writes"]): number {
  let chars = 0;
  for (const body of writes.values()) chars += body?.length ?? 0;
  return chars;
}

/**
 * The server checks `seen` where the youngest `seenAt` asks for it, and refuses all where one is late: an answer that
 * holds for one of them only sends all of them alone.
 */
function joined(members: readonly Member[]): JoinedCommit {
  const [first] = members;
  if (first === undefined) throw new Error("Nothing to join.");
  const reads = new Map<RowKey, number>();
  const writes = new Map<RowKey, string | null>();
  const [seen, topics] = [new Set<string>(), new Set<string>()];
  let { seenAt, notAfter } = first.commit;
  for (const { commit } of members) {
    for (const [key, seq] of commit.reads) reads.set(key, seq);
    for (const [key, body] of commit.writes) writes.set(key, body);
    for (const id of commit.seen) seen.add(id);
    for (const topic of commit.topics) topics.add(topic);
    seenAt = Math.max(seenAt, commit.seenAt);
    notAfter = Math.min(notAfter, commit.notAfter);
  }
  const { epoch, isDurable } = first.commit;
  const ids = members.map(({ commit }) => commit.id);
  return { ids, epoch, isDurable, reads, writes, seen: [...seen], topics: [...topics], seenAt, notAfter };
}
