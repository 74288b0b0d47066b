import { describe, expect, it } from "vitest";
import { z } from "zod";
import {
  type ExecResult,
  errorBodySchema,
  execResultSchema,
  recoverySchema,
  type SandboxSummary,
  SandlotError,
  sandboxSummarySchema,
  WORKSPACE_DIRECTORIES,
  WORKSPACE_ROOT,
} from "../src/index.ts";

const RESULT: ExecResult = {
  execId: "e1",
  status: "completed",
  exitCode: 0,
  signal: null,
  stdout: "",
  stderr: "",
  stdoutDroppedBytes: 0,
  stderrDroppedBytes: 0,
  durationMs: 0.5,
};

const SUMMARY: SandboxSummary = {
  sandboxId: "s1",
  user: null,
  thread: null,
  state: "blank",
  generation: 1_700_000_000_000,
  blueprint: "default",
  backend: "memory",
  holders: [],
  createdAt: 1,
  parkedAt: null,
};

describe("an exec result", () => {
  it("is accepted with and without an exit code", () => {
    expect(execResultSchema.parse(RESULT)).toEqual(RESULT);
    expect(execResultSchema.parse({ ...RESULT, status: "timed_out", exitCode: null, signal: "SIGKILL" })).toBeTruthy();
  });

  it("may have what a later release adds", () => {
    expect(execResultSchema.parse({ ...RESULT, extra: 1 })).toEqual(RESULT);
  });

  it.each([
    ["a missing exit code", { ...RESULT, exitCode: undefined }],
    ["half an exit code", { ...RESULT, exitCode: 0.5 }],
    ["a status that is no word", { ...RESULT, status: "all done" }],
    ["a negative duration", { ...RESULT, durationMs: -1 }],
    ["a negative count of dropped bytes", { ...RESULT, stdoutDroppedBytes: -1 }],
  ])("is refused with %s", (_, value) => {
    expect(execResultSchema.safeParse(value).success).toBe(false);
  });
});

describe("a sandbox summary", () => {
  it.each(["creating", "leased", "parked", "blank", "stopping"] as const)("can be %s", (state) => {
    expect(sandboxSummarySchema.parse({ ...SUMMARY, state }).state).toBe(state);
  });

  it.each([
    ["a state that is no word", { ...SUMMARY, state: 1 }],
    ["a thread that is missing rather than null", { ...SUMMARY, thread: undefined }],
    ["a broken generation", { ...SUMMARY, generation: 1.5 }],
  ])("is refused with %s", (_, value) => {
    expect(sandboxSummarySchema.safeParse(value).success).toBe(false);
  });
});

it("a summary drops what it does not know: nothing that was not meant for its reader is handed on", () => {
  expect(sandboxSummarySchema.parse({ ...SUMMARY, state: "hibernating", token: "secret" })).toEqual({
    ...SUMMARY,
    state: "hibernating",
  });
});

describe("a recovery", () => {
  it.each(["same", "restored", "empty"])("can be %s", (kind) => {
    expect(recoverySchema.parse({ kind, lost: ["processes"], survived: [] }).kind).toBe(kind);
  });

  it("is refused without saying what was lost", () => {
    expect(recoverySchema.safeParse({ kind: "same", survived: [] }).success).toBe(false);
  });
});

describe("an error body", () => {
  const { remedy: _, ...body } = new SandlotError("internal", { problem: "x" }).toJSON();

  it("may name its request", () => {
    expect(errorBodySchema.parse({ error: { ...body, requestId: "r1" } }).error.requestId).toBe("r1");
  });

  it("is read from a later version: other codes and more fields are kept", () => {
    const later = { error: { ...body, code: "code_of_tomorrow", extra: 1 }, extra: 2 };
    expect(errorBodySchema.parse(later)).toEqual(later);
    expect(errorBodySchema.safeParse({ error: { ...body, retryable: "yes" } }).success).toBe(false);
  });
});

it.each([
  ["ExecResult", execResultSchema],
  ["Recovery", recoverySchema],
  ["SandboxSummary", sandboxSummarySchema],
])("%s has its name in JSON Schema, and takes fields that a later version adds", (name, schema) => {
  const { $ref, $defs } = z.toJSONSchema(schema, { io: "input" });
  expect($ref).toBe(`#/$defs/${name}`);
  expect($defs?.[name]).toMatchObject({ type: "object" });
  expect($defs?.[name]).not.toHaveProperty("additionalProperties");
});

it("the workspace's directories are plain names below its root", () => {
  expect(WORKSPACE_ROOT).toMatch(/^\/[a-z/-]+[^/]$/);
  expect(WORKSPACE_DIRECTORIES.every((name) => /^[a-z]+$/.test(name))).toBe(true);
});
