import { describe, expect, test } from "vitest";
import { reasonNotToKeep } from "../../src/slot/keeping.ts";
import { recordWith } from "../support/records.ts";

const record = recordWith({ revision: 3 });
const slot = { thread: "t", origin: "parked", wanted: true, expiresAt: 1_000, record } as Parameters<
  typeof reasonNotToKeep
>[0];

describe("a sandbox that nobody holds any more", () => {
  test.each([
    [999, null],
    [1_000, "expired"],
    [1_001, "expired"],
  ])("at %i of 1000 ms of its lifetime: %s", (now, reason) => {
    expect(reasonNotToKeep(slot, record, now)).toBe(reason);
  });

  test("and that has no thread of its own ends as released, whatever else is true", () => {
    const anonymous = { ...slot, thread: "~ab" as typeof slot.thread };
    expect(reasonNotToKeep(anonymous, record, 0)).toBe("released");
    expect(reasonNotToKeep({ ...anonymous, wanted: false }, record, 2_000)).toBe("released");
  });

  test.each([
    ["cold", false, "create-abandoned"],
    ["blank", false, "create-abandoned"],
    ["parked", false, null],
    ["cold", true, null],
    ["blank", true, null],
  ] as const)("opened %s and wanted %s: %s", (origin, wanted, reason) => {
    expect(reasonNotToKeep({ ...slot, origin, wanted }, record, 0)).toBe(reason);
  });
});
