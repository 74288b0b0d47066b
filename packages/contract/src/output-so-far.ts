/**
 * What a command has printed until now, in parts of a limited size. A reader goes on at `nextOffset`; there may be
 * more while that is less than `totalBytes` and the text was not empty.
 */

export interface OutputOptions {
  /** Where to begin; default the beginning of what is held. */
  readonly from?: { readonly stdout?: number; readonly stderr?: number };
  /** Of each stream. Default `execResultMaxBytes`, at least `OUTPUT_MIN_BYTES`, at most `execOutputMaxBytes`. */
  readonly maxBytes?: number;
  readonly signal?: AbortSignal;
}

/** No character is longer, so that a part is never empty while there is more. */
export const OUTPUT_MIN_BYTES = 4;
