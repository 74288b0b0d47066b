/** Progress of a call on checkpoints: to its caller, and as events where the request has a name. */

import { expect, test } from "vitest";
import type { Checkpoints } from "../../src/backend/checkpoints.ts";
import { newStage } from "../support/stage.ts";
import { intercepted } from "./intercepted-checkpoints.ts";

const T1 = { thread: "t1" } as const;

test("a named call tells its progress as events, at most one each second; one without a name does not", async () => {
  const stage = newStage({ checkpoints: { automatic: false } });
  let step: ((files: number) => void) | null = null;
  let end: (() => void) | null = null;
  const take: Checkpoints["take"] = async (_owner, { onProgress }) => {
    step = (files) => onProgress?.({ phase: "walking", files, bytes: files * 10, totalFiles: null });
    await new Promise<void>((resolve) => (end = resolve));
    return { kind: "nothing" };
  };
  const { fleet, eventsOf } = await stage.open(undefined, (parts) => intercepted(parts, { take }));
  await (await fleet.acquire(T1)).release();
  for (const requestId of [undefined, "r-1"]) {
    const seen: number[] = [];
    const onProgress = ({ files }: { readonly files: number }) => seen.push(files);
    const named = requestId === undefined ? {} : { requestId };
    const refused = stage.refusal("thread_not_found", fleet.checkpoints.take(T1, { ...named, onProgress }));
    await stage.settle();
    for (let files = 1; files <= 6; files++) {
      (step as ((files: number) => void) | null)?.(files);
      await stage.advance(600);
    }
    (end as (() => void) | null)?.();
    await refused;
    expect(seen).toEqual([1, 2, 3, 4, 5, 6]);
  }
  const told = eventsOf("checkpoint-progress");
  expect(told.map(({ requestId, thread, phase, files }) => [requestId, thread, phase, files])).toEqual([
    ["r-1", "t1", "walking", 3],
    ["r-1", "t1", "walking", 5],
  ]);
});
