/** `POST /v1/sandboxes/:id/confirm-dead`: an operator's word, where an engine cannot tell by itself. */

import type { EngineRef, SandboxId } from "@sandlot/contract";
import { afterAll, beforeAll, expect, test } from "vitest";
import { confirmDead } from "../../src/inspect/confirm-dead.ts";
import type { ExplainParts } from "../../src/inspect/explain.ts";
import { openStage, type Stage } from "./support/stage.ts";

interface Answer {
  readonly error: { readonly code: string };
}

let stage: Stage;
beforeAll(async () => {
  stage = await openStage();
});
afterAll(() => stage.done());

test("only operators may give it, and an engine that always knows what runs takes none", async () => {
  const path = `/v1/sandboxes/${"a".repeat(20)}/confirm-dead`;
  expect((await stage.operator.ask<Answer>(501, "POST", path)).error.code).toBe("capability_missing");
  const user = await stage.user("alice");
  expect((await user.ask<Answer>(403, "POST", path)).error.code).toBe("forbidden");
});

test("what answers is not dead, and what cannot be asked is, in the name of who said so", async () => {
  const record = { state: "stopping", ref: "ns/pod/uid" as EngineRef, sandboxId: "abc", engine: "e", user: "u" };
  const said: string[] = [];
  const parts = (liveness: "alive" | "unknown") =>
    ({
      isOurs: () => true,
      store: { get: async (id: SandboxId) => (id === "abc" ? record : null), tombstone: async () => null },
      backend: {
        name: "pods",
        probe: async () => liveness,
        confirmDead: async (ref: EngineRef, by: string) => void said.push(`${ref} ${by}`),
      },
    }) as unknown as ExplainParts;
  const never = new AbortController().signal;
  await expect(confirmDead(parts("alive"), "abc", "key k1", never)).rejects.toMatchObject({ code: "invalid_request" });
  expect(said).toEqual([]);
  await confirmDead(parts("unknown"), "abc", "key k1", never);
  expect(said).toEqual(["ns/pod/uid key k1"]);
});
