/**
 * Where timelines are kept: one bounded log of lines for each thread, beside its workspace where that is on a disk, else
 * in the store.
 *
 * Rules for every implementation (`test/timeline/timelines-suite.ts` tests them)
 * - An offset is a number of bytes. Offsets of a thread grow for ever: after a purge they begin beyond all earlier ones.
 * - Lines are appended whole, or not at all. Several processes may append at the same time.
 * - A log holds at most `TIMELINE_MAX_BYTES`. Its oldest lines go first, and a reader is told.
 * - After a purge, lines about what was before it are left out, whoever appends them.
 */

import { hash } from "node:crypto";
import type { WorkspaceOwner } from "./checkpoints.ts";

export const TIMELINE_MAX_BYTES = 1024 * 1024;
/** Longer lines are refused by their writer, so that one entry cannot push out all others. */
export const TIMELINE_LINE_MAX_BYTES = 8 * 1024;
/** A full log drops a piece of this size at once. */
export const TIMELINE_PIECE_BYTES = TIMELINE_MAX_BYTES / 8;
/** Until then, lines from before a purge may still be on their way. */
export const PURGE_REMEMBERED_MS = 24 * 3_600_000;
/** Offsets of a log begin at its first time by this, so that no later log of the thread repeats one. */
const OFFSETS_PER_MS = 1_024;

export interface TimelineLine {
  /** Wall-clock milliseconds. */
  readonly at: number;
  /** Of the sandbox that it is about. */
  readonly generation: number | null;
  /** Without a line break. */
  readonly text: string;
}

/** The end of a thread's former log. `generation` is 0 where the thread had no sandbox. */
export interface TimelinePurge {
  readonly generation: number;
  readonly at: number;
}

export interface TimelineText {
  /** The offset of the first byte of `bytes`. */
  readonly first: number;
  /** Whole lines, each with its line break. */
  readonly bytes: Uint8Array;
  /** False: older lines of this log were dropped. */
  readonly isWhole: boolean;
}

export interface Timelines {
  /** How long a writer gathers lines before it appends them. */
  readonly gatherMs: number;
  append(owner: WorkspaceOwner, lines: readonly TimelineLine[]): Promise<void>;
  /** All lines from `from` on, and perhaps some before it; `null`: the thread has no log. */
  read(owner: WorkspaceOwner, from?: number): Promise<TimelineText | null>;
  /** Where the next line goes, at the earliest. Cheap: a follower asks often. */
  end(owner: WorkspaceOwner): Promise<number>;
  purge(owner: WorkspaceOwner, purge: TimelinePurge): Promise<void>;
  /** Forgets purges of long ago. */
  sweep(): Promise<void>;
  close(): Promise<void>;
}

/** Whether a line is about what a purge has removed. */
function isPurged({ generation, at }: Pick<TimelineLine, "generation" | "at">, purge: TimelinePurge): boolean {
  return generation !== null && purge.generation > 0 ? generation <= purge.generation : at <= purge.at;
}

/** The first offset of a log that begins now. */
export function firstOffset(wallMs: number): number {
  return Math.max(1, Math.floor(wallMs)) * OFFSETS_PER_MS;
}

/** The bytes of lines, without those that a purge covers. */
export function encodeLines(lines: readonly TimelineLine[], purge: TimelinePurge | null): Buffer {
  const kept = purge === null ? lines : lines.filter((line) => !isPurged(line, purge));
  return Buffer.from(kept.map(({ text }) => `${text}\n`).join(""));
}

/** A name of the owner that tells nothing. */
export function ownerHash({ user, thread }: WorkspaceOwner): string {
  return hash("sha256", `${user}\n${thread}`).slice(0, 32);
}
