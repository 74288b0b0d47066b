/** `sandlot timeline`: what happened to a thread; as it happens with `--follow`; as one file with `--export`. */

import { createWriteStream } from "node:fs";
import { rm } from "node:fs/promises";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import {
  isoTime,
  SandlotError,
  summaryOf,
  TIMELINE_KINDS,
  type TimelineEntry,
  type TimelineKind,
} from "@sandlot/contract";
import type { TimelineFilter } from "../fleet.ts";
import { requireThread, type TargetOptions, type ThreadName, withTarget } from "./target.ts";
import { printable, printJson, type Terminal } from "./terminal.ts";

export interface TimelineCommandOptions extends TargetOptions {
  readonly user?: string;
  readonly kind?: readonly string[];
  readonly since?: number;
  readonly limit?: number;
  readonly follow?: boolean;
  readonly export?: string;
  readonly json: boolean;
}

const LIMIT_DEFAULT = 200;
const LIMIT_MAX = 1_000;

export async function timelineCommand(
  terminal: Terminal,
  thread: string,
  options: TimelineCommandOptions,
  signal: AbortSignal,
): Promise<void> {
  const { user, json, follow = false, limit = LIMIT_DEFAULT, since } = options;
  const name: ThreadName = { thread, user };
  const kinds = parseKinds(options.kind);
  const filter: TimelineFilter = {
    ...(kinds !== undefined && { kinds }),
    ...(since !== undefined && { since: Date.now() - since }),
  };
  await withTarget(terminal, options, async (target) => {
    const { timeline } = target;
    if (options.export !== undefined) {
      const format = options.export.endsWith(".json") ? "json" : "html";
      return save(options.export, await timeline.export(name, format, signal), signal);
    }
    const { entries, end, isWhole } = await timeline.read(name, { ...filter, limit: Math.min(limit, LIMIT_MAX) });
    // A name that was mistyped has neither.
    if (end === 0) await requireThread(target, name);
    if (json && !follow) return printJson(terminal, { isWhole, entries });
    if (!isWhole) terminal.error("The log was full: its oldest entries were dropped.\n");
    for (const entry of entries) print(terminal, entry, json);
    if (!follow) return;
    try {
      for await (const entry of timeline.follow(name, end, filter, signal)) print(terminal, entry, json);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  });
}

function print(terminal: Terminal, entry: TimelineEntry | null, json: boolean): void {
  if (json) printJson(terminal, entry ?? { kind: "gap" }, 0);
  else if (entry === null) terminal.error("[some entries were dropped before they were read]\n");
  else terminal.out(`${printable(`${isoTime(entry.at)}  ${entry.kind.padEnd(10)}  ${summaryOf(entry)}`)}\n`);
}

function parseKinds(given: readonly string[] | undefined): readonly TimelineKind[] | undefined {
  return given?.map((word) => {
    const kind = TIMELINE_KINDS.find((known) => known === word);
    if (kind !== undefined) return kind;
    throw new SandlotError("invalid_request", { field: "kind", problem: `is one of ${TIMELINE_KINDS.join(", ")}` });
  });
}

/** To a new file: an existing one stays as it is. */
async function save(path: string, bytes: Uint8Array, signal: AbortSignal): Promise<void> {
  try {
    await pipeline(Readable.from([bytes]), createWriteStream(path, { flags: "wx", mode: 0o600 }), { signal });
  } catch (error) {
    if ((error as { code?: unknown }).code !== "EEXIST") await rm(path, { force: true });
    throw error;
  }
}
