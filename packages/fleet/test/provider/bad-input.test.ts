/** Bad input is refused with a typed error before anything is created. */

import type { ErrorCode } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import { type Instance, newStage, type Stage } from "../support/stage.ts";

type Call = (instance: Instance) => Promise<unknown>;
type Case = readonly [title: string, code: ErrorCode, call: Call];

const BAD_IDS: readonly (readonly [string, unknown])[] = [
  ["an empty", ""],
  ["a dotted", "../up"],
  ["a spaced", "a b"],
  ["a too long", "x".repeat(129)],
  ["a newline in the", "a\nb"],
  ["a trailing newline in the", "a\n"],
  ["a NUL in the", "a\0b"],
  ["a non-ASCII", "日本"],
  ["a numeric", 7],
  ["an object as", {}],
  ["null as", null],
];

/** The last two are the limit's neighbours: a timer cannot wait longer than 2^31 - 1 ms. */
const BAD_DELAYS: readonly unknown[] = [0, -1, Number.NaN, Infinity, -Infinity, "5", 2 ** 31, 2 ** 53];

const bad = <T>(value: unknown): T => value as T;

async function expectUntouched(stage: Stage, { backend, store }: Instance): Promise<void> {
  await stage.advance(500);
  expect(await stage.records()).toEqual([]);
  expect(stage.objects()).toEqual([]);
  expect(backend.callsOf("create")).toHaveLength(0);
  expect(store.callsOf("take")).toHaveLength(0);
}

const CASES: readonly Case[] = [
  ...BAD_IDS.flatMap(([name, value]): readonly Case[] => [
    [`acquire: ${name} thread id`, "invalid_thread_id", ({ fleet }) => fleet.acquire({ thread: bad(value) })],
    [`acquire: ${name} user id`, "invalid_user_id", ({ fleet }) => fleet.acquire({ user: bad(value), thread: "t1" })],
    [`warm: ${name} thread id`, "invalid_thread_id", ({ fleet }) => fleet.warm({ thread: bad(value) })],
    [`destroy: ${name} thread id`, "invalid_thread_id", ({ fleet }) => fleet.destroy({ thread: bad(value) })],
    [
      `destroy with purge: ${name} user id`,
      "invalid_user_id",
      ({ fleet }) => fleet.destroy({ user: bad(value), thread: "t1" }, { purge: true }),
    ],
  ]),
  ["warm: no thread", "invalid_thread_id", ({ fleet }) => fleet.warm(bad({}))],
  ["acquire: the key of a call without a thread", "invalid_thread_id", ({ fleet }) => fleet.acquire({ thread: "~ab" })],
  ["acquire: a thread id of 65", "invalid_thread_id", ({ fleet }) => fleet.acquire({ thread: "x".repeat(65) })],
  ...BAD_DELAYS.flatMap((value): readonly Case[] => [
    [
      `acquire: timeoutMs ${String(value)}`,
      "invalid_request",
      ({ fleet }) => fleet.acquire({ thread: "t1", timeoutMs: bad(value) }),
    ],
    [
      `acquire: ttlMs ${String(value)}`,
      "invalid_request",
      ({ fleet }) => fleet.acquire({ thread: "t1", ttlMs: bad(value) }),
    ],
    [
      `warm: timeoutMs ${String(value)}`,
      "invalid_request",
      ({ fleet }) => fleet.warm({ thread: "t1", timeoutMs: bad(value) }),
    ],
    [
      `destroy: timeoutMs ${String(value)}`,
      "invalid_request",
      ({ fleet }) => fleet.destroy({ thread: "t1" }, { timeoutMs: bad(value) }),
    ],
  ]),
  [
    "acquire: an unknown blueprint",
    "blueprint_unknown",
    ({ fleet }) => fleet.acquire({ thread: "t1", blueprint: "x" }),
  ],
  ["warm: an unknown blueprint", "blueprint_unknown", ({ fleet }) => fleet.warm({ thread: "t1", blueprint: "x" })],
  ["acquire: an inherited name", "blueprint_unknown", ({ fleet }) => fleet.acquire({ blueprint: "__proto__" })],
  ["explain: an unknown sandbox", "sandbox_not_found", ({ fleet }) => fleet.explain("nobody")],
  ["remote lease: renewing an unknown one", "lease_not_found", ({ fleet }) => fleet.remoteLeases.renew("nobody")],
];

describe("bad input is refused with a typed error, and nothing is half-made", () => {
  test.each(CASES)("%s", async (_, code, call) => {
    const stage = newStage();
    const instance = await stage.open();
    const error = await stage.refusal(code, call(instance));
    expect(error.retryable).toBe(false);
    await expectUntouched(stage, instance);
  });

  test("null as a blueprint is refused", async () => {
    const stage = newStage();
    const instance = await stage.open();
    await stage.refusal("blueprint_unknown", instance.fleet.acquire({ thread: "t1", blueprint: bad(null) }));
    await expectUntouched(stage, instance);
  });

  test("the limits themselves are accepted: 64 letters, 128 letters, 1 ms, 2^31 - 1 ms", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    const user = "u".repeat(128);
    await (await fleet.acquire({ user, thread: "x".repeat(64), timeoutMs: 2 ** 31 - 1, ttlMs: 1 })).release();
    await (await fleet.acquire({ user, thread: "x".repeat(64), timeoutMs: 1, ttlMs: 2 ** 31 - 1 })).release();
  });

  test("a bad ttlMs leaves the leases of a held sandbox as they are", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await stage.refusal("invalid_request", fleet.acquire({ thread: "t1", ttlMs: -5 }));
    await lease.release();
    expect((await stage.recordOf("t1"))?.holders).toEqual({});
  });

  test("releasing an unknown remote lease is false, not an error", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    expect(await fleet.remoteLeases.release("nobody")).toBe(false);
  });
});
