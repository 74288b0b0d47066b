/**
 * Two sandboxes of one thread without records, after a store loss: the newest belongs to the thread, and while it is
 * unreachable the other waits.
 */

import {
  type Generation,
  type SandboxId,
  SandlotError,
  type ThreadId,
  type Token,
  type UserId,
} from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import { threadKeyOf } from "../../../src/backend/labels.ts";
import { newStage } from "../../support/stage.ts";

const LIFETIME_MS = 15_000;

async function withTwin() {
  const stage = newStage({ sessionLifetimeMs: LIFETIME_MS, orphanTimeoutMs: 20_000, idleTimeoutMs: 0 });
  const a = await stage.open();
  const lease = await stage.until(a.fleet.acquire({ thread: "t1" }));
  const newest = lease.sandbox.id;
  await lease.release();
  const record = await stage.recordOf("t1");
  if (record === null) throw new Error("it should be parked");
  const { blueprint, blueprintHash } = record;
  const key = { user: "default" as UserId, thread: "t1" as ThreadId };
  const credentials = { generation: (record.generation - 5) as Generation, token: "older" as Token };
  const sandboxId = "older" as SandboxId;
  const labels = { fleet: "stage" as never, sandboxId, generation: credentials.generation, blueprintHash };
  const marker = { ...key, ...credentials, sandboxId, blueprint, blueprintHash };
  const spec = { ...credentials, labels: { ...labels, threadKey: threadKeyOf(key.user, key.thread) }, marker };
  const made = { environment: {}, limits: {}, mounts: [], network: { mode: "none" as const, allow: [] } };
  await a.backend.proxy.create({ ...spec, blueprint: made }, new AbortController().signal);
  expect(stage.objects()).toHaveLength(2);
  a.crash({ seen: true });
  stage.tables.empty();
  return { stage, newest, older: sandboxId };
}

describe("of two unknown sandboxes of a thread", () => {
  test("the newest is adopted, and the older one goes", async () => {
    const { stage, newest } = await withTwin();
    await stage.open();
    await stage.advance(6 * LIFETIME_MS);
    expect(await stage.recordOf("t1")).toMatchObject({ sandboxId: newest, state: "ready" });
    expect(stage.objects().map(({ labels }) => labels.sandboxId)).toEqual([newest]);
  });

  test("the older one waits while the newest cannot be asked", async () => {
    const { stage, newest, older } = await withTwin();
    let silent = true;
    await stage.open({}, ({ backend }) => {
      backend.on("attach", (proceed, { sandboxId }) => {
        if (!silent || sandboxId !== newest) return proceed();
        return Promise.reject(
          new SandlotError("sandbox_unreachable", { sandboxId, problem: "planted", retryAfterMs: 100 }),
        );
      });
    });
    await stage.advance(6 * LIFETIME_MS);
    expect(await stage.recordOf("t1")).toBe(null);
    expect(stage.objects().map(({ labels }) => labels.sandboxId)).toContain(older);
    silent = false;
    await stage.advance(6 * LIFETIME_MS);
    expect(await stage.recordOf("t1")).toMatchObject({ sandboxId: newest, state: "ready" });
    expect(stage.objects().map(({ labels }) => labels.sandboxId)).toEqual([newest]);
  });
});
