import { SandlotError } from "@sandlot/contract";
import { expect, it } from "vitest";
import { unreachable } from "../../../src/lifecycle/acquire/outcomes.ts";
import type { SandboxRecord } from "../../../src/store/record.ts";

const record = { sandboxId: "s1" } as unknown as SandboxRecord;

it("what a sandbox says in words that are unknown here is not what an acquire answers with", () => {
  const sent = { code: "thread_gone", message: "There is no such thread.", retryable: true, details: {} };
  const told = unreachable(record, SandlotError.received(sent, 404));
  expect(told).toMatchObject({ code: "sandbox_unreachable", status: 503, details: { sandboxId: "s1" } });
  expect((told as SandlotError).message).toContain("There is no such thread.");
});

it("an error of ours that passes by itself is told as it is", () => {
  const details = { engine: "docker", problem: "p", tried: [], retryAfterMs: 1 };
  const passing = new SandlotError("engine_unavailable", details);
  expect(unreachable(record, passing)).toBe(passing);
});

it("a daemon of another protocol version keeps its own error: a retry would meet the same daemon", () => {
  const other = new SandlotError("protocol_incompatible", { peer: "daemon", theirs: "2.0", ours: "1.0" });
  expect(unreachable(record, other)).toBe(other);
  expect(other.retryable).toBe(false);
});
