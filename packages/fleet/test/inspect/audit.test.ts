/** Engine against store, and a list that believes the engine where the two disagree. */

import type { AuditFinding } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import type { EngineObject } from "../../src/backend/backend.ts";
import { auditFleet } from "../../src/inspect/audit.ts";
import { livingSandboxes } from "../../src/inspect/living.ts";
import { summarize } from "../../src/inspect/summary.ts";
import type { SandboxRecord } from "../../src/store/record.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { HELD, objectOf, recordWith } from "../support/records.ts";

const NEVER = new AbortController().signal;

/** Each list in turn; the last one stays. */
function audited(
  objects: readonly (readonly EngineObject[])[],
  records: readonly (readonly SandboxRecord[])[],
  isOurs = (_: SandboxRecord) => true,
) {
  const next = <T>(answers: readonly T[]) => {
    let asked = 0;
    return async () => answers[Math.min(asked++, answers.length - 1)] as T;
  };
  return auditFleet({ backend: { list: next(objects) }, store: { list: next(records) }, isOurs }, NEVER);
}

describe("an audit", () => {
  test("does not miss on its own engine what another engine has", async () => {
    const [there, here] = [recordWith({ engine: "there" }), recordWith({ engine: "here" })];
    const findings = await audited([[]], [[there, here]], ({ engine }) => engine === "here");
    expect(findings).toMatchObject([{ kind: "gone", sandboxId: here.sandboxId }]);
  });

  test("reports what is missing, dead, unknown or there twice", async () => {
    const [missing, dead, twice, well] = [recordWith(), recordWith(), recordWith(), recordWith()];
    const stray = recordWith();
    const objects = [
      { ...objectOf(dead), liveness: "dead" as const },
      objectOf(twice),
      { ...objectOf(twice), ref: "second" as never },
      objectOf(well),
      objectOf(stray),
    ];
    const findings = await audited([objects], [[missing, dead, twice, well]]);
    expect(findings.map(({ kind, sandboxId }) => [kind, sandboxId])).toEqual([
      ["gone", dead.sandboxId],
      ["second", twice.sandboxId],
      ["unknown", stray.sandboxId],
      ["gone", missing.sandboxId],
    ]);
  });

  test("says nothing of what was made, or had ended, between two answers", async () => {
    const [made, ended] = [recordWith(), recordWith()];
    expect(await audited([[], [objectOf(made)]], [[made]])).toEqual([]);
    expect(await audited([[objectOf(ended)], []], [[]])).toEqual([]);
    expect(await audited([[]], [[made]])).toMatchObject([{ kind: "gone" }]);
  });
});

describe("a list", () => {
  const parked = summarize(recordWith());
  const held = summarize(recordWith(HELD));
  const gone: readonly AuditFinding[] = [parked, held].map(({ sandboxId }) => ({
    kind: "gone",
    sandboxId,
    problem: "",
  }));
  const listed = (audit: () => Promise<readonly AuditFinding[]>) =>
    livingSandboxes({ list: async () => [parked, held], audit }, systemWorld());

  test("leaves out what has ended by itself, but nothing that is held", async () => {
    expect(await listed(async () => gone)).toEqual([held]);
    expect(await listed(async () => gone.map((one) => ({ ...one, kind: "second" })))).toEqual([parked, held]);
  });

  test("has everything where the engine does not answer", async () => {
    const failed = () => Promise.reject(new Error("no engine"));
    expect(await listed(failed)).toEqual([parked, held]);
    const began = performance.now();
    expect(await listed(() => new Promise(() => undefined))).toEqual([parked, held]);
    expect(performance.now() - began).toBeLessThan(4_000);
  });
});
