import { describe, expect, expectTypeOf, it } from "vitest";
import { ERRORS, type ErrorCode, errorBodySchema, isSandlotError, SandlotError } from "../src/index.ts";
import { ERROR_SAMPLES } from "./error-samples.ts";

const CODES = Object.keys(ERRORS) as ErrorCode[];

describe("the registry", () => {
  it("has a sample for every code and no other", () => {
    expect(Object.keys(ERROR_SAMPLES).sort()).toEqual([...CODES].sort());
  });

  it.each(CODES)("%s: a code in snake case, whole sentences, nothing undefined", (code) => {
    const { message, remedy, status } = new SandlotError(code, ERROR_SAMPLES[code]);
    expect(code).toMatch(/^[a-z]+(_[a-z]+)*$/);
    expect(message).toMatch(/[.?]$/);
    expect(message).not.toMatch(/undefined|\[object|NaN|\.\.$/);
    expect(remedy).toMatch(/^[A-Z].*\.$/s);
    expect(status).toBeGreaterThanOrEqual(400);
  });

  it.each(CODES)("%s: says how long to wait only when waiting can help", (code) => {
    if ("retryAfterMs" in ERROR_SAMPLES[code]) expect(ERRORS[code].retryable).toBe(true);
  });

  it("answers 429, 503 and 504 only for what passes, except a fleet that is closed", () => {
    const passing = CODES.filter((code) => [429, 503, 504].includes(ERRORS[code].status));
    expect(passing.filter((code) => !ERRORS[code].retryable)).toEqual(["fleet_closed"]);
  });
});

describe("a SandlotError", () => {
  const error = new SandlotError("file_too_large", ERROR_SAMPLES.file_too_large, { cause: "disk" });

  it("has everything its code says", () => {
    expect(error).toBeInstanceOf(Error);
    expect(error).toMatchObject({ name: "SandlotError", status: 413, retryable: false, cause: "disk" });
    expect(String(error)).toContain("SandlotError: /mnt/user-data/workspace/report.md has 200000000 bytes");
  });

  it.each(CODES)("%s travels as JSON in one shape", (code) => {
    const details = ERROR_SAMPLES[code];
    const sent: unknown = JSON.parse(JSON.stringify(new SandlotError(code, details)));
    const { message, retryable, remedy } = new SandlotError(code, details);
    expect(sent).toEqual({ code, message, retryable, details, remedy });
  });

  it.each(CODES)("%s fits the schema of an error body", (code) => {
    const { message, retryable, details } = new SandlotError(code, ERROR_SAMPLES[code]);
    expect(errorBodySchema.parse({ error: { code, message, retryable, details } }).error.code).toBe(code);
    // A client of this version reads the errors of a later one.
    expect(errorBodySchema.safeParse({ error: { code: `${code}x`, message, retryable, details } }).success).toBe(true);
    expect(errorBodySchema.safeParse({ error: { code, message, details } }).success).toBe(false);
  });

  it("is narrowed by its code", () => {
    const caught: unknown = error;
    expect(isSandlotError(caught)).toBe(true);
    expect(isSandlotError(caught, "file_too_large")).toBe(true);
    expect(isSandlotError(caught, "internal")).toBe(false);
    expect(isSandlotError(new Error("file_too_large"))).toBe(false);
    if (isSandlotError(caught, "file_too_large")) expectTypeOf(caught.details.maxBytes).toEqualTypeOf<number>();
  });
});
