/**
 * What a command has printed until now, in parts of a limited size. A reader goes on at `nextOffset`; there may be
 * more while that is less than `totalBytes` and the text was not empty.
 */

import type { ExecStatus } from "./sandbox.ts";

export interface OutputOptions {
  /** Where to begin; default the beginning of what is held. */
  readonly from?: { readonly stdout?: number; readonly stderr?: number };
  /** Of each stream. Default `execResultMaxBytes`, at least `OUTPUT_MIN_BYTES`, at most `execOutputMaxBytes`. */
  readonly maxBytes?: number;
  readonly signal?: AbortSignal;
}

export interface OutputSoFar {
  /** Of a session's command: the id that its result has. */
  readonly execId: string;
  readonly status: "running" | ExecStatus;
  /** `null` while it runs, and when it did not exit by itself. */
  readonly exitCode: number | null;
  readonly stdout: OutputPart;
  readonly stderr: OutputPart;
}

export interface OutputPart {
  /** Whole characters. What is not UTF-8 becomes U+FFFD, as in a result. */
  readonly text: string;
  /** The offset of the first byte of `text`. Beyond the one asked for when the bytes between are no longer held. */
  readonly offset: number;
  readonly nextOffset: number;
  /** How much was printed in all. */
  readonly totalBytes: number;
}

/** No character is longer, so that a part is never empty while there is more. */
export const OUTPUT_MIN_BYTES = 4;
