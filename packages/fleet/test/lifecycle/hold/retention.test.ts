import { describe, expect, test } from "vitest";
import { isUntouched, reasonNotToKeep } from "../../../src/lifecycle/hold/retention.ts";
import { recordWith } from "../../support/records.ts";

const record = recordWith({ revision: 3, arrival: "empty" });
const slot = {
  thread: "t",
  origin: "parked",
  used: true,
  warmed: false,
  expiresAt: 1_000,
  record,
} as unknown as Parameters<typeof reasonNotToKeep>[0];

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
    expect(reasonNotToKeep({ ...anonymous, used: false }, record, 2_000)).toBe("released");
  });

  test.each([
    ["cold", { used: false, warmed: false }, "create-abandoned"],
    ["blank", { used: false, warmed: false }, "create-abandoned"],
    ["parked", { used: false, warmed: false }, null],
    ["cold", { used: true, warmed: false }, null],
    ["blank", { used: true, warmed: false }, null],
    ["cold", { used: false, warmed: true }, null],
    ["blank", { used: false, warmed: true }, null],
  ] as const)("opened %s, %j: %s", (origin, wishes, reason) => {
    expect(reasonNotToKeep({ ...slot, origin, ...wishes }, record, 0)).toBe(reason);
  });

  test.each([
    [3, true],
    [4, true],
    [5, true],
    [6, false],
  ])("that had revision 3 and has %i now is untouched by others: %s", (revision, untouched) => {
    expect(isUntouched(record, { ...record, revision })).toBe(untouched);
    const abandoned = { ...slot, origin: "cold" as const, used: false };
    expect(reasonNotToKeep(abandoned, { ...record, revision }, 0)).toBe(untouched ? "create-abandoned" : null);
  });

  test("and that we have used under a later hold of our own is not untouched, however few writes that took", () => {
    expect(isUntouched(record, { ...record, arrival: null, revision: 5 })).toBe(false);
  });

  test("and that is bound only in the record was used by nobody", () => {
    const boundFrom = { generation: record.generation, token: record.token };
    expect(isUntouched({ ...record, arrival: null }, recordWith({ ...record, arrival: null, boundFrom }))).toBe(true);
  });

  test("and that was put back into an emptied store under the same id is not the same any more", () => {
    expect(isUntouched(record, { ...record, createdAt: record.createdAt + 1 })).toBe(false);
  });
});
