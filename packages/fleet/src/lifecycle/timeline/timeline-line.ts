/**
 * The lines of a timeline: one JSON object each. Written words never change.
 *
 * Invariants
 * - Every text is bounded, and free of the values of bound secrets. What a line leaves out ends with an ellipsis.
 * - A damaged line, and one of a later version that cannot be read, is left out by the reader.
 */

import { type InstanceId, type TimelineEntry, type TimelineNote, timelineEntrySchema } from "@sandlot/contract";
import { TIMELINE_LINE_MAX_BYTES, type TimelineLine, type TimelineText } from "../../backend/timelines.ts";
import { tryJson } from "../../world/try-json.ts";

/** What an entry is about. */
export interface About {
  readonly sandboxId: string | null;
  readonly generation: number | null;
}

export interface Noted {
  readonly at: number;
  readonly about: About;
  readonly note: TimelineNote;
}

export const COMMAND_MAX_CHARS = 2_000;
const TEXT_MAX_CHARS = 400;
const NAME_MAX_CHARS = 200;
const NAMES_MAX = 10;
/** Shorter values occur by chance. */
const SECRET_MIN_CHARS = 8;
const LINE_FEED = 10;

export class LineWriter {
  readonly #instance: InstanceId;
  readonly #secrets: readonly string[];
  readonly #longest: number;

  constructor(instance: InstanceId, secrets: readonly string[]) {
    this.#instance = instance;
    this.#secrets = secrets.filter(({ length }) => length >= SECRET_MIN_CHARS).sort((a, b) => b.length - a.length);
    this.#longest = this.#secrets[0]?.length ?? 0;
  }

  /** `null`: it has no form that fits. */
  line({ at, about, note }: Noted): TimelineLine | null {
    const facts = Object.fromEntries(
      Object.entries(note.facts).flatMap(([name, value]: [string, unknown]) =>
        value === undefined ? [] : [[name, this.#bounded(name, value)]],
      ),
    );
    const { kind, what } = note;
    const text = JSON.stringify({ at, instance: this.#instance, ...about, kind, what, facts });
    return Buffer.byteLength(text) > TIMELINE_LINE_MAX_BYTES ? null : { at, generation: about.generation, text };
  }

  #bounded(name: string, value: unknown): unknown {
    if (typeof value === "string") return this.#text(value, name === "command" ? COMMAND_MAX_CHARS : TEXT_MAX_CHARS);
    if (!Array.isArray(value)) return value;
    return value.slice(0, NAMES_MAX).map((one) => this.#text(String(one), NAME_MAX_CHARS));
  }

  #text(value: string, max: number): string {
    // A secret that the first cut has halved would not be found.
    const room = max * 4 + this.#longest;
    let text = value.length > room ? value.slice(0, room) : value;
    for (const secret of this.#secrets) text = text.replaceAll(secret, "[redacted]");
    if (value.length > room) text = text.slice(0, Math.max(0, text.length - this.#longest));
    const isCut = text.length > max || value.length > room;
    return (isCut ? `${text.slice(0, max - 1)}…` : text).toWellFormed();
  }
}

const storedSchema = timelineEntrySchema.omit({ offset: true });

/** The entries of a log, the oldest first. */
export function* entriesOf({ first, bytes }: TimelineText): Generator<TimelineEntry> {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const told = new Set<string>();
  for (let start = 0; start < buffer.byteLength; ) {
    const found = buffer.indexOf(LINE_FEED, start);
    const end = found < 0 ? buffer.byteLength : found;
    const stored = storedSchema.safeParse(tryJson(buffer.toString("utf8", start, end)));
    if (stored.success && !isRepeated(stored.data, told)) yield { offset: first + start, ...stored.data };
    start = end + 1;
  }
}

/** Two instances that read one terminal both note its commands; their place in its output is the same. */
function isRepeated({ kind, what, generation, facts }: Omit<TimelineEntry, "offset">, told: Set<string>): boolean {
  if (kind !== "command" || facts.way !== "terminal") return false;
  const name = `${generation} ${facts.terminalId} ${facts.outputOffset} ${what}`;
  if (told.has(name)) return true;
  told.add(name);
  return false;
}
