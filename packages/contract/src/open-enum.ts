/**
 * Words from a list that a later version may extend: states, kinds, reasons.
 *
 * A response may hold a word that this version does not know. The reader passes it on, so a `switch` over such a word
 * needs a `default`. Requests use `z.enum`: there an unknown word is refused.
 */

import { z } from "zod";

/** The known words, which editors complete, or any other word. */
export type OpenEnum<Known extends string> = Known | (string & {});

/** Anything else is not a word. A word becomes the name of an event or a label, so it has no spaces or line breaks. */
const WORD_PATTERN = /^[A-Za-z][A-Za-z0-9_.-]{0,63}$/;

/** The OpenAPI document lists the known words as `x-extensible-enum`. */
export function openEnum<const Known extends string>(known: readonly Known[]): z.ZodType<OpenEnum<Known>> {
  return z.string().regex(WORD_PATTERN).meta({ "x-extensible-enum": known }) as unknown as z.ZodType<OpenEnum<Known>>;
}

type Plain = string | number | boolean | bigint | symbol | null | undefined;

/** The read-only type of a schema: results are never changed. */
export type Immutable<T> = T extends Plain
  ? T
  : T extends readonly (infer Item)[]
    ? readonly Immutable<Item>[]
    : { readonly [Name in keyof T]: Immutable<T[Name]> };
