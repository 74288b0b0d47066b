/** A checkpoint with `quiesce`: the sandbox stands still meanwhile, and goes on however the checkpoint ends. */

import { describe, expect, test } from "vitest";
import type { Checkpoints } from "../../src/backend/checkpoints.ts";
import { type Instance, newStage } from "../support/stage.ts";
import { intercepted } from "./intercepted-checkpoints.ts";

const T1 = { thread: "t1" } as const;
type Parts = Pick<Instance, "backend">;

/** Gives the backend a freezer. `stood`: what each thaw answers, in turn; then true. */
function freezable({ backend }: Parts, steps: string[], stood: readonly boolean[] = []): void {
  let freezes = 0;
  const freeze = async () => {
    const answer = stood[freezes++] ?? true;
    steps.push("freeze");
    let isOver = false;
    return async () => {
      if (!isOver) steps.push("thaw");
      isOver = true;
      return answer;
    };
  };
  Object.defineProperty(backend.proxy, "freeze", { value: freeze, configurable: true });
  Object.defineProperty(backend.proxy, "capabilities", {
    value: new Set([...backend.proxy.capabilities, "pause"]),
    configurable: true,
  });
}

function noting(parts: Parts, steps: string[], take?: Checkpoints["take"]): void {
  const real = parts.backend.proxy.checkpoints?.take;
  intercepted(parts, {
    take(owner, options) {
      steps.push(`take ${options.writers}`);
      if (take !== undefined) return take(owner, options);
      if (real === undefined) throw new Error("no checkpoints");
      return real(owner, options);
    },
  });
}

async function opened(stood: readonly boolean[] = [], take?: Checkpoints["take"]) {
  const stage = newStage({ checkpoints: { automatic: false } });
  const steps: string[] = [];
  const instance = await stage.open(undefined, (parts) => {
    freezable(parts, steps, stood);
    noting(parts, steps, take);
  });
  const lease = await instance.fleet.acquire(T1);
  await lease.sandbox.exec("echo one > file");
  return { stage, steps, ...instance, lease };
}

describe("a checkpoint with quiesce", () => {
  test("is taken between freezing and thawing", async () => {
    const { fleet, lease, steps } = await opened();
    await lease.checkpoint({ quiesce: true });
    expect(steps).toEqual(["freeze", "take frozen", "thaw"]);
    await lease.checkpoint();
    expect(steps.slice(3)).toEqual(["take live"]);
    await lease.release();
    expect(await fleet.checkpoints.list(T1)).toHaveLength(1);
  });

  test("freezes nothing where the thread has no sandbox", async () => {
    const { stage, fleet, lease, steps } = await opened();
    await lease.release();
    await stage.until(fleet.destroy(T1));
    await fleet.checkpoints.take(T1, { quiesce: true });
    expect(steps).toEqual(["take frozen"]);
  });

  test("that fails, is late or is cancelled leaves the sandbox running", async () => {
    const failing = await opened([], () => Promise.reject(new Error("the taker was killed")));
    await expect(failing.lease.checkpoint({ quiesce: true })).rejects.toThrow("the taker was killed");
    expect(failing.steps).toEqual(["freeze", "take frozen", "thaw"]);
    const late = await opened([], () => new Promise(() => {}));
    await late.stage.refusal("checkpoint_timeout", late.lease.checkpoint({ quiesce: true, timeoutMs: 2_000 }));
    await late.stage.settle();
    expect(late.steps).toEqual(["freeze", "take frozen", "thaw"]);
    const cancelled = await opened([], () => new Promise(() => {}));
    const controller = new AbortController();
    const taking = cancelled.lease.checkpoint({ quiesce: true, signal: controller.signal });
    const refused = expect(taking).rejects.toThrow("enough");
    await cancelled.stage.settle();
    controller.abort(new Error("enough"));
    await refused;
    expect(cancelled.steps).toEqual(["freeze", "take frozen", "thaw"]);
  });

  test("during which something ran is taken anew, and the first one is removed", async () => {
    const { fleet, lease, steps } = await opened([false]);
    const { checkpoint } = await lease.checkpoint({ quiesce: true, label: "still" });
    expect(steps).toEqual(["freeze", "take frozen", "thaw", "freeze", "take frozen", "thaw"]);
    expect((await fleet.checkpoints.list(T1)).map(({ id, label }) => [id, label])).toEqual([[checkpoint.id, "still"]]);
  });

  test("of a sandbox that never stands still is refused, and leaves none", async () => {
    const { stage, fleet, lease } = await opened([false, false, false]);
    const refused = await stage.refusal("sandbox_unreachable", lease.checkpoint({ quiesce: true }));
    expect(refused.details.problem).toContain("stand still");
    expect(await fleet.checkpoints.list(T1)).toEqual([]);
  });

  test("waits for another one of the same sandbox", async () => {
    const gates: (() => void)[] = [];
    const nothing = { kind: "nothing" } as const;
    const { stage, lease, steps } = await opened([], async () => {
      await new Promise<void>((resolve) => gates.push(resolve));
      return nothing;
    });
    const refusals = [1, 2].map(() => stage.refusal("thread_not_found", lease.checkpoint({ quiesce: true })));
    await stage.settle();
    expect(steps).toEqual(["freeze", "take frozen"]);
    gates[0]?.();
    await stage.settle();
    expect(steps).toEqual(["freeze", "take frozen", "thaw", "freeze", "take frozen"]);
    gates[1]?.();
    await Promise.all(refusals);
  });
});
