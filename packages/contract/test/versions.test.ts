/** Accepted and refused input of a later version. */

import { describe, expect, expectTypeOf, it } from "vitest";
import {
  type AnyErrorCode,
  checkProtocol,
  type ErrorCode,
  type execResultSchema,
  fileChangeSchema,
  isErrorCode,
  isSandlotError,
  PROTOCOL_VERSION,
  pickExecOptions,
  pickSpawnOptions,
  SandlotError,
  type sandboxSummarySchema,
  tornBytes,
  unfinishedBytes,
} from "../src/index.ts";

describe("a word that a later version has added", () => {
  it.each(["paused", "limit-hit", "timed_out.cpu"])("%s is read as it is", (type) => {
    expect(fileChangeSchema.parse({ type, path: "/a", more: 1 })).toEqual({ type, path: "/a" });
  });

  it.each(["", "two words", "a\ndata: b", "a".repeat(65), 1, null])("%j is no word", (type) => {
    expect(fileChangeSchema.safeParse({ type, path: "/a" }).success).toBe(false);
  });

  it("leaves the known ones to the type", () => {
    type Status = ReturnType<typeof execResultSchema.parse>["status"];
    expectTypeOf<"completed">().toExtend<Status>();
    type State = ReturnType<typeof sandboxSummarySchema.parse>["state"];
    expectTypeOf<"parked">().toExtend<State>();
  });
});

describe("an error of a later version", () => {
  const sent = {
    code: "quota_spent",
    message: "The month is over.",
    retryable: true,
    details: { until: "December", retryAfterMs: 5 },
    remedy: "Wait.",
  };

  it("keeps everything that was sent", () => {
    const error = SandlotError.received(sent, 402);
    expect(error).toBeInstanceOf(SandlotError);
    expect({ ...error.toJSON() }).toEqual(sent);
    expect(error.status).toBe(402);
    expect(isSandlotError(error)).toBe(true);
    expect(isSandlotError(error, "internal")).toBe(false);
    expect(isErrorCode(error.code)).toBe(false);
  });

  it("says where more is written when it brings no remedy", () => {
    const { remedy: _, ...bare } = sent;
    expect(SandlotError.received(bare, 402).remedy).toContain("docs/errors.md");
  });

  it("goes to the default of a switch", () => {
    const kind = (error: SandlotError) => {
      switch (error.code) {
        case "internal":
          return "ours";
        default:
          return "other";
      }
    };
    expect(kind(SandlotError.received(sent, 402))).toBe("other");
    expect(kind(new SandlotError("internal", { problem: "x" }))).toBe("ours");
    expectTypeOf<SandlotError["code"]>().toEqualTypeOf<AnyErrorCode>();
    expectTypeOf<SandlotError<"internal">["code"]>().toEqualTypeOf<"internal">();
    expectTypeOf<ErrorCode>().toExtend<AnyErrorCode>();
  });

  it("cannot be made by a misspelled code", () => {
    // @ts-expect-error there is no such code
    expect(() => new SandlotError("internall", { problem: "x" })).toThrow(TypeError);
  });
});

describe("the version of the protocol", () => {
  it.each([undefined, null, "", PROTOCOL_VERSION, "1.7", "01.0", "latest", "2", "2.0.0", "99999.0", "-1.0"])(
    "%s is read on",
    (announced) => {
      expect(() => checkProtocol("gateway", announced)).not.toThrow();
    },
  );

  it.each(["2.0", "0.9", "10.3"])("%s is refused", (theirs) => {
    const refused = expect.objectContaining({
      code: "protocol_incompatible",
      details: { peer: "daemon", theirs, ours: PROTOCOL_VERSION },
    });
    expect(() => checkProtocol("daemon", theirs)).toThrow(refused);
  });
});

describe("the options of a command", () => {
  const all = {
    ...{ execId: "e", cwd: "/", env: { A: "1" }, timeoutMs: 1, outputMaxBytes: 2 },
    ...{ keepStdinOpen: true, output: "hold" as const, stdin: "x", signal: undefined, other: 1 },
  };

  it("are picked by what is called", () => {
    const shared = { execId: "e", cwd: "/", env: { A: "1" }, timeoutMs: 1 };
    expect(pickExecOptions(all)).toEqual({ ...shared, outputMaxBytes: 2 });
    expect(pickSpawnOptions(all)).toEqual({ ...shared, keepStdinOpen: true, output: "hold" });
    expect(pickExecOptions({ cwd: undefined })).toEqual({});
  });
});

describe("bytes that were cut", () => {
  const text = "aä€😀";
  const bytes = new TextEncoder().encode(text);

  it("are whole characters between what is torn and what is unfinished, wherever they were cut", () => {
    for (let from = 0; from <= bytes.length; from++)
      for (let to = from; to <= bytes.length; to++) {
        const part = bytes.subarray(from, to);
        const torn = Math.min(tornBytes(part), part.length);
        const whole = part.subarray(torn, Math.max(torn, part.length - unfinishedBytes(part)));
        expect(text).toContain(new TextDecoder("utf-8", { fatal: true }).decode(whole));
      }
  });
});
