/**
 * Waits for a container that was just started: until it is ready, or has ended with a reason.
 */

import type { DaemonConfig } from "@sandlot/contract";
import { sleep } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";
import type { Engine } from "../engine/engine.ts";
import { hearReady } from "./announcement.ts";
import type { ReadyListener } from "./socket-directory.ts";
import { explainExit } from "./start-problem.ts";

interface Parts {
  readonly engine: Engine;
  readonly world: World;
}

/** The interval of checks for the end of a container that is not ready yet. Readiness itself is announced. */
const LOOK_MS = 200;

/** Resolves when the daemon announces itself; rejects with the reason when the container ends before. */
export async function becomesReady(
  parts: Parts,
  containerId: string,
  config: DaemonConfig,
  listener: ReadyListener | null,
  signal: AbortSignal,
): Promise<void> {
  const said = async (either: AbortSignal) => hearReady(await parts.engine.output(containerId, either), config, either);
  await unlessItEnds(parts, containerId, signal, (either) => listener?.wait(either) ?? said(either));
}

/** Rejects when the container ends before `wait` does. */
export async function unlessItEnds(
  parts: Parts,
  containerId: string,
  signal: AbortSignal,
  wait: (either: AbortSignal) => Promise<void>,
): Promise<void> {
  const over = new AbortController();
  const either = AbortSignal.any([signal, over.signal]);
  try {
    await Promise.race([wait(either), end(parts, containerId, either)]);
  } finally {
    over.abort(new Error("it is over"));
  }
}

async function end({ engine, world }: Parts, containerId: string, signal: AbortSignal): Promise<never> {
  for (;;) {
    await sleep(world, LOOK_MS, signal);
    const state = (await engine.inspect(containerId))?.State;
    if (state?.Status === "running" || state?.Status === "created") continue;
    if (state?.Status === "paused") {
      // Another client paused it: the wait goes on. A failed unpause shows at the next check.
      await engine.unpause(containerId).catch(() => {});
      continue;
    }
    const said = await engine.logTail(containerId, 20).catch(() => "");
    signal.throwIfAborted();
    throw explainExit(state ?? null, said);
  }
}
