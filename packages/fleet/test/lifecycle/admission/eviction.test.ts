import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { planEviction } from "../../../src/lifecycle/admission/eviction.ts";
import { isBlank, isHeld, isParked } from "../../../src/store/record.ts";
import { anyRecord, BLANK, HELD, LEASED, recordWith } from "../../support/records.ts";

const always = () => true;

describe("planEviction", () => {
  test("takes blanks first, then the longest parked, and what is busy last", () => {
    const newBlank = recordWith({ ...BLANK, createdAt: 20 });
    const oldBlank = recordWith({ ...BLANK, createdAt: 10 });
    const busy = recordWith({ parkedAt: 1 });
    const older = recordWith({ parkedAt: 2 });
    const newer = recordWith({ parkedAt: 3 });
    const plan = planEviction([newer, busy, newBlank, older, oldBlank], null, (record) => record !== busy);
    expect(plan).toEqual([oldBlank, newBlank, older, newer, busy]);
  });

  test("never takes what is held, leased to a remote caller, being made or being stopped", () => {
    const records = [
      recordWith(HELD),
      recordWith(LEASED),
      recordWith({ state: "creating", actor: "i" }),
      recordWith({ state: "stopping", actor: "i" }),
      recordWith({ ...BLANK, state: "creating", actor: "i" }),
    ];
    expect(planEviction(records, null, always)).toEqual([]);
  });

  test("takes only that user's own parked ones when a user's limit was reached, and no blank", () => {
    const own = recordWith({ user: "alice" });
    const records = [recordWith(BLANK), recordWith({ user: "bob" }), own];
    expect(planEviction(records, "alice" as never, always)).toEqual([own]);
  });

  test("for any fleet: a permutation of exactly what nobody uses, in that order", () => {
    fc.assert(
      fc.property(
        fc.array(anyRecord([0, 100, 200]), { maxLength: 20 }),
        fc.constantFrom(null, "alice", "bob"),
        fc.array(fc.boolean(), { minLength: 20, maxLength: 20 }),
        (records, user, idle) => {
          const isIdle = (record: (typeof records)[number]) => idle[records.indexOf(record)] === true;
          const plan = planEviction(records, user as never, isIdle);
          const allowed = records.filter((record) =>
            user === null ? isBlank(record) || isParked(record) : isParked(record) && record.user === user,
          );
          expect(new Set(plan)).toEqual(new Set(allowed));
          expect(plan).toHaveLength(allowed.length);
          expect(plan.some(isHeld)).toBe(false);
          const rank = (record: (typeof records)[number]) => (isBlank(record) ? 0 : isIdle(record) ? 1 : 2);
          expect(plan.map(rank)).toEqual(plan.map(rank).sort());
          for (const kind of [1, 2]) {
            const since = plan.filter((record) => rank(record) === kind).map(({ parkedAt }) => parkedAt ?? 0);
            expect(since).toEqual([...since].sort((a, b) => a - b));
          }
        },
      ),
    );
  });
});
