/** The target of checkpoint commands through a gateway: progress comes from the events of the call. */

import type { SandlotClient } from "@sandlot/client";
import { expect, test } from "vitest";
import { checkpointsOfGateway } from "../../src/cli/checkpoint-target.ts";

interface Call {
  readonly requestId?: string;
  readonly signal?: AbortSignal;
}

/** A gateway whose calls take until their progress was told, or until they are let go. */
function gateway(tells: boolean) {
  const calls: (readonly [string, Call])[] = [];
  let ended = 0;
  let wake = () => {};
  const begun = new Promise<void>((resolve) => (wake = resolve));
  let told = () => {};
  const done = new Promise<void>((resolve) => (told = resolve));
  const call =
    (name: string) =>
    async (...args: readonly unknown[]) => {
      calls.push([name, args.at(-1) as Call]);
      wake();
      if (tells) await done;
      return {};
    };
  const client = {
    checkpoints: Object.fromEntries(
      ["take", "verify", "diff", "restore", "undo", "redo"].map((name) => [name, call(name)]),
    ),
    branchThread: call("fork"),
    async *events({ signal }: { readonly signal: AbortSignal }) {
      try {
        if (!tells) throw new Error("this gateway tells no events");
        await begun;
        const about = { type: "checkpoint-progress", phase: "walking", bytes: 5, totalFiles: null };
        yield null;
        yield { ...about, requestId: "another", files: 1 };
        yield { ...about, requestId: calls[0]?.[1].requestId, files: 7 };
        told();
        await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
      } finally {
        ended += 1;
      }
    },
  };
  return { target: checkpointsOfGateway(client as unknown as SandlotClient), calls, ended: () => ended };
}

const name = { thread: "t1" } as const;
const CALLS = ["take", "verify", "diff", "restore", "undo", "redo", "fork"] as const;

test.each(CALLS)("%s shows the progress of its own request, and follows events no longer", async (which) => {
  for (const tells of [true, false]) {
    const { target, calls, ended } = gateway(tells);
    const seen: number[] = [];
    const call = {
      signal: new AbortController().signal,
      onProgress: ({ files }: { readonly files: number }) => void seen.push(files),
    };
    if (which === "take") await target.take(name, {}, call);
    else if (which === "verify") await target.verify(name, undefined, call);
    else if (which === "diff") await target.diff(name, {}, call);
    else if (which === "fork") await target.fork(name, "t2", undefined, call);
    else if (which === "restore") await target.restore(name, { checkpoint: "c1", force: false }, call);
    else await target.restore(name, { direction: which, force: false }, call);
    expect(calls.map(([what]) => what)).toEqual([which]);
    expect(seen).toEqual(tells ? [7] : []);
    expect(ended()).toBe(1);
  }
});
