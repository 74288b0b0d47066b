/**
 * The output of a command until now, in parts of limited size. A reader continues at `nextOffset`; there may be more
 * while that is less than `totalBytes` and the text was not empty.
 */

export interface OutputOptions {
  /** The start offsets; default the beginning of the held output. */
  readonly from?: { readonly stdout?: number; readonly stderr?: number };
  /** Per stream. Default `execResultMaxBytes`, at least `OUTPUT_MIN_BYTES`, at most `execOutputMaxBytes`. */
  readonly maxBytes?: number;
  readonly signal?: AbortSignal;
}

/** The longest character, so that a part is never empty while there is more. */
export const OUTPUT_MIN_BYTES = 4;
