import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  DEFAULT_USER,
  isSandlotError,
  parseThreadId,
  parseUserId,
  threadIdSchema,
  userIdSchema,
} from "../src/index.ts";

const CASES = [
  { name: "thread", parse: parseThreadId, schema: threadIdSchema, code: "invalid_thread_id", max: 64 },
  { name: "user", parse: parseUserId, schema: userIdSchema, code: "invalid_user_id", max: 128 },
] as const;

const ALLOWED = [..."ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"];

function refusal(parse: (value: unknown) => unknown, value: unknown): unknown {
  try {
    parse(value);
  } catch (error) {
    return error;
  }
  throw new Error(`${JSON.stringify(value)} was accepted`);
}

describe.each(CASES)("a $name id", ({ parse, schema, code, max }) => {
  it.each([1, 2, max - 1, max])("may have %i characters", (length) => {
    expect(parse("a".repeat(length))).toBe("a".repeat(length));
  });

  it.each([0, max + 1, max * 2])("may not have %i characters", (length) => {
    expect(isSandlotError(refusal(parse, "a".repeat(length)), code)).toBe(true);
  });

  it.each(["a/b", "../x", "a b", "a.b", "a\n", "\na", "a\0", "ä", "Ａ", "a:b", "%41"])("may not be %j", (value) => {
    expect(isSandlotError(refusal(parse, value), code)).toBe(true);
  });

  it.each([undefined, null, 1, {}, [], ["a"], true, Symbol("a"), new String("a")])(
    "may not be a non-string",
    (value) => {
      expect(isSandlotError(refusal(parse, value), code)).toBe(true);
    },
  );

  it("accepts exactly what its schema accepts", () => {
    const lengths = fc.constantFrom(0, 1, 2, 63, 64, 65, 127, 128, 129);
    const proper = lengths.chain((length) =>
      fc
        .array(fc.constantFrom(...ALLOWED), { minLength: length, maxLength: length })
        .map((letters) => letters.join("")),
    );
    fc.assert(
      fc.property(fc.oneof(proper, fc.string({ unit: "binary", maxLength: 140 })), (value) => {
        const isProper =
          value.length >= 1 && value.length <= max && [...value].every((letter) => ALLOWED.includes(letter));
        expect(schema.safeParse(value).success).toBe(isProper);
        if (isProper) expect(parse(value)).toBe(value);
        else expect(isSandlotError(refusal(parse, value), code)).toBe(true);
      }),
    );
  });

  it("shows a long bad value shortened", () => {
    const error = refusal(parse, "/".repeat(10_000));
    expect(isSandlotError(error) && error.message.length).toBeLessThan(200);
  });
});

it("has a default user that is a valid one", () => {
  expect(parseUserId(DEFAULT_USER)).toBe(DEFAULT_USER);
});
