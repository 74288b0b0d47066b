/**
 * A row server on Redis 7 and newer, or Valkey. Each call is one script (`scripts.ts`) on the master.
 *
 * Invariants
 * - A call that has no answer rejects with `store_unavailable`; a commit may have happened then. Its retry with the same
 *   id is answered as the first time.
 * - A commit with `isDurable` is answered only when `replicasMin` replicas have it. If they do not confirm it in a quarter
 *   of the timeout, it rejects with `store_unavailable` although the master has it. A retry waits for them again.
 * - An answer is parsed before it is believed. Another program's answer is `store_unavailable`, never a wrong row.
 */

import type { Epoch } from "@sandlot/contract";
import type { World } from "../../world/world.ts";
import { CommitGatherer, type JoinedAnswer, type JoinedCommit } from "../rows/commit-gatherer.ts";
import { epochAfter } from "../rows/epoch-order.ts";
import type { Commit, CommitAnswer, Cursor, Page, ReadAnswer, RowKey, RowServer, Topic } from "../rows/row-server.ts";
import { cursorFrom, parseCommit, parseEpoch, parsePage, parseRead } from "./answers.ts";
import { commitArguments, rowField } from "./commit-arguments.ts";
import { MasterLink, type MasterSession } from "./master-link.ts";
import { promiseOf, type ServerFacts } from "./safety.ts";
import { type Keys, keysOf, SCRIPTS, type Script } from "./scripts.ts";
import { type RedisSettings, showEndpoint } from "./settings.ts";
import { Topics } from "./topics.ts";
import { meansAnotherMaster, troubleOf, unavailable, wordOf } from "./trouble.ts";

/** A page of this many rows, of a kilobyte each, keeps the server busy for about a millisecond. */
const PAGE_MAX = 250;
/** Old entries that one call removes from a server that is out of memory. */
const RELIEVED_MAX = 500;

const GAVE_UP = "it did not answer before the caller stopped waiting";

/** A connection, or the commits that wait for replicas on theirs. */
interface Sender {
  send(args: readonly string[], signal: AbortSignal): Promise<unknown>;
}

export interface RedisRowServerOptions {
  readonly settings: RedisSettings;
  readonly world: World;
}

/** Rejects with `store_unavailable` or `store_corrupt`, and then leaves nothing open. */
export async function openRedisRowServer({ settings, world }: RedisRowServerOptions): Promise<RedisRowServer> {
  const keys = keysOf(settings.prefix);
  const link = await MasterLink.open({ settings, keys, world });
  return new RedisRowServer(link, keys, settings, world);
}

export class RedisRowServer implements RowServer {
  readonly kind = "redis";
  readonly promise: "linearizable" | "may-rewind";
  readonly #link: MasterLink;
  readonly #keys: Keys;
  readonly #world: World;
  readonly #topics: Topics;
  readonly #commits: CommitGatherer;

  constructor(link: MasterLink, keys: Keys, settings: RedisSettings, world: World) {
    this.#link = link;
    this.#keys = keys;
    this.#world = world;
    this.#topics = new Topics(link, keys.channel, world);
    this.#commits = new CommitGatherer({
      world,
      send: (commit, signal) => this.#commitTogether(commit, signal),
      gaveUp: () => unavailable("commit", GAVE_UP),
    });
    const isSingle = settings.topology.kind === "standalone" && settings.replicasMin === 0;
    this.promise = promiseOf(this.facts(), isSingle);
  }

  /** What the present server says of itself. */
  facts(): ServerFacts {
    return this.#link.session("read its settings").facts;
  }

  commit(commit: Commit, signal: AbortSignal): Promise<CommitAnswer> {
    return this.#commits.commit(commit, signal);
  }

  #commitTogether(commit: JoinedCommit, signal: AbortSignal): Promise<JoinedAnswer> {
    return this.#call("commit", signal, async (session) => {
      const args = commitArguments(commit, this.#keys.channel);
      const { durable, commands } = session;
      const sender = commit.isDurable && durable !== null ? durable : commands;
      return parseCommit(await this.#run(sender, SCRIPTS.commit, args, signal));
    });
  }

  read(keys: readonly RowKey[], signal: AbortSignal): Promise<ReadAnswer> {
    return this.#call("read", signal, async ({ commands }) =>
      parseRead(await this.#run(commands, SCRIPTS.read, keys.map(rowField), signal), keys),
    );
  }

  scan(since: Cursor | null, limit: number, signal: AbortSignal): Promise<Page | null> {
    return this.#call("scan", signal, async ({ commands }) => {
      const position = cursorFrom(since);
      if (position === null) return null;
      const size = Math.max(1, Math.min(Math.floor(limit), PAGE_MAX));
      return parsePage(await this.#run(commands, SCRIPTS.scan, [String(size), ...position], signal));
    });
  }

  beginEpoch(known: Epoch, next: Epoch, signal: AbortSignal): Promise<Epoch> {
    return this.#call("beginEpoch", signal, async ({ commands }) =>
      parseEpoch(await this.#run(commands, SCRIPTS.beginEpoch, [known, next], signal)),
    );
  }

  subscribe(listener: (topic: Topic | "*") => void): () => void {
    return this.#topics.subscribe(listener);
  }

  async close(): Promise<void> {
    await this.#topics.close();
    await this.#link.close();
  }

  /** Gives the call its session, and every failure a name. */
  async #call<T>(operation: string, signal: AbortSignal, work: (session: MasterSession) => Promise<T>): Promise<T> {
    const session = this.#link.session(operation);
    try {
      return await work(session);
    } catch (error) {
      if (signal.aborted) throw unavailable(operation, GAVE_UP, error);
      if (meansAnotherMaster(error)) this.#link.drop(session);
      if (wordOf(error) === "OOM") await this.#relieve(session.commands, signal);
      throw troubleOf(operation, showEndpoint(session.dial.endpoint), error);
    }
  }

  async #run(sender: Sender, script: Script, args: readonly string[], signal: AbortSignal): Promise<unknown> {
    const { all } = this.#keys;
    // A server without an epoch takes this one: it is new, or was flushed.
    const rest = [
      String(all.length),
      ...all,
      epochAfter(null, this.#world.wallMs(), this.#world.randomHex(8)),
      ...args,
    ];
    try {
      return await sender.send(["EVALSHA", script.hash, ...rest], signal);
    } catch (error) {
      if (wordOf(error) !== "NOSCRIPT") throw error;
      await sender.send(["SCRIPT", "LOAD", script.text], signal);
      return sender.send(["EVALSHA", script.hash, ...rest], signal);
    }
  }

  /** A full server runs no commit, and so nothing would ever remove what is old. Its failure changes no answer. */
  async #relieve(sender: Sender, signal: AbortSignal): Promise<void> {
    await this.#run(sender, SCRIPTS.relieve, [String(RELIEVED_MAX)], signal).catch(() => undefined);
  }
}
