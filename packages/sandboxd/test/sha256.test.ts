import { createHash } from "node:crypto";
import { fc, test } from "@fast-check/vitest";
import { describe, expect } from "vitest";
import { sha256 } from "../src/wire/sha256.ts";

describe("SHA-256", () => {
  /** Lengths around every limit of the padding. */
  const text = fc
    .oneof(fc.constantFrom(0, 1, 54, 55, 56, 57, 63, 64, 65, 119, 120, 128), fc.nat(300))
    .chain((length) => fc.string({ unit: "binary-ascii", minLength: length, maxLength: length }));

  test.prop([fc.oneof(text, fc.string({ unit: "grapheme" }))])("is what everybody computes", (value) => {
    expect(sha256(value)).toBe(createHash("sha256").update(value).digest("hex"));
  });
});
