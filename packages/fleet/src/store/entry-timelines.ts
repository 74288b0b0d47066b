/**
 * Timelines as shared entries, for threads whose workspaces are on no disk of this host. Every gateway of the store
 * keeps all entries in memory, so a log is shorter here than on a disk, and there are fewer: the threads that were
 * written last.
 *
 * Invariant: a log is one entry, and is replaced only by a writer that has read its present number.
 */

import { z } from "zod";
import type { WorkspaceOwner } from "../backend/checkpoints.ts";
import {
  encodeLines,
  firstOffset,
  ownerHash,
  PURGE_REMEMBERED_MS,
  type TimelineLine,
  type TimelinePurge,
  type Timelines,
  type TimelineText,
} from "../backend/timelines.ts";
import { tryJson } from "../world/try-json.ts";
import { sleep } from "../world/waiting.ts";
import type { World } from "../world/world.ts";
import type { SharedEntries, SharedEntry } from "./entries.ts";

/** Two thirds of an entry: JSON needs more room than the text itself. */
const LOG_MAX_BYTES = 40 * 1024;
const BODY_MAX_BYTES = 60 * 1024;
/** At most 30 MiB in the memory of each gateway. */
const LOGS_MAX = 500;
const TRIES_MAX = 50;
const RETRY_MS = 10;
const PREFIX = "timeline/";

const bodySchema = z.object({
  first: z.int(),
  isWhole: z.boolean(),
  changedAt: z.number(),
  purge: z.object({ generation: z.number(), at: z.number() }).nullable(),
  text: z.string(),
});

type Body = z.infer<typeof bodySchema>;

export class EntryTimelines implements Timelines {
  /** A write is a commit of the store, which every gateway hears of. */
  readonly gatherMs = 2_000;
  readonly #entries: SharedEntries;
  readonly #world: World;

  constructor(entries: SharedEntries, world: World) {
    this.#entries = entries;
    this.#world = world;
  }

  append(owner: WorkspaceOwner, lines: readonly TimelineLine[]): Promise<void> {
    return this.#change(owner, (body) => {
      const bytes = encodeLines(lines, body?.purge ?? null);
      if (bytes.byteLength === 0) return null;
      const first = body === null || body.first === 0 ? firstOffset(this.#world.wallMs()) : body.first;
      const purge = body?.purge ?? null;
      return shortened({
        ...{ first, isWhole: body?.isWhole ?? true, purge, changedAt: this.#world.wallMs() },
        text: `${body?.text ?? ""}${bytes.toString("utf8")}`,
      });
    });
  }

  async read(owner: WorkspaceOwner): Promise<TimelineText | null> {
    const body = parsed(await this.#entries.get(nameOf(owner)));
    if (body === null || body.text === "") return null;
    return { first: body.first, bytes: Buffer.from(body.text), isWhole: body.isWhole };
  }

  async end(owner: WorkspaceOwner): Promise<number> {
    const body = parsed(await this.#entries.get(nameOf(owner)));
    return body === null ? 0 : body.first + Buffer.byteLength(body.text);
  }

  purge(owner: WorkspaceOwner, purge: TimelinePurge): Promise<void> {
    const changedAt = this.#world.wallMs();
    return this.#change(owner, () => ({ first: 0, isWhole: true, changedAt, purge, text: "" }));
  }

  async sweep(): Promise<void> {
    const before = this.#world.wallMs() - PURGE_REMEMBERED_MS;
    for (const entry of await this.#entries.list(PREFIX)) {
      const body = parsed(entry);
      if (body === null || (body.text === "" && body.changedAt < before))
        await this.#entries.delete(entry.name, entry.seq);
    }
    await this.#makeRoom(LOGS_MAX);
  }

  async close(): Promise<void> {}

  /** `null`: nothing to write. */
  async #change(owner: WorkspaceOwner, change: (body: Body | null) => Body | null): Promise<void> {
    const name = nameOf(owner);
    for (let tries = 0; tries < TRIES_MAX; tries += 1) {
      const present = await this.#entries.get(name);
      const body = change(parsed(present));
      if (body === null) return;
      if (present === null) await this.#makeRoom(LOGS_MAX - 1);
      const { kind } = await this.#entries.put(name, JSON.stringify(body), present?.seq ?? null);
      if (kind === "put") return;
      if (kind === "changed") await sleep(this.#world, RETRY_MS * this.#world.random() * (1 + tries));
      else throw new Error(`the store takes no more entries: ${kind}`);
    }
    throw new Error("other gateways write this timeline all the time");
  }

  /** Removes the logs that were written longest ago. */
  async #makeRoom(max: number): Promise<void> {
    const entries = await this.#entries.list(PREFIX);
    if (entries.length <= max) return;
    const oldest = [...entries].sort((one, other) => changedAt(one) - changedAt(other)).slice(0, entries.length - max);
    for (const { name, seq } of oldest) await this.#entries.delete(name, seq);
  }
}

function nameOf(owner: WorkspaceOwner): string {
  return `${PREFIX}${ownerHash(owner)}`;
}

/** A body that a later version wrote, or damage, is no log. */
function parsed(entry: SharedEntry | null): Body | null {
  const body = entry === null ? null : bodySchema.safeParse(tryJson(entry.body));
  return body?.success === true ? body.data : null;
}

function changedAt(entry: SharedEntry): number {
  return parsed(entry)?.changedAt ?? 0;
}

/** Drops whole lines from the beginning until it fits, a quarter of the log at once. */
function shortened(body: Body): Body {
  let { first, isWhole, text } = body;
  const isTooLong = () =>
    Buffer.byteLength(text) > LOG_MAX_BYTES || Buffer.byteLength(JSON.stringify({ ...body, text })) > BODY_MAX_BYTES;
  if (!isTooLong()) return body;
  do {
    const bytes = Buffer.from(text);
    const cut = bytes.indexOf("\n", Math.floor(bytes.byteLength / 4)) + 1;
    first += cut === 0 ? bytes.byteLength : cut;
    text = cut === 0 ? "" : bytes.subarray(cut).toString("utf8");
    isWhole = false;
  } while (text !== "" && isTooLong());
  return { ...body, first, isWhole, text };
}
