/**
 * Faults of the engine under load: restarted, killed, paused for a while, and its disk filled. A missing response is
 * never taken for a death, every call settles, and afterwards every caller is served.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { DockerYard } from "../stage/docker-yard.ts";
import { Load } from "./load.ts";

const CALLERS = 3;
/** Long enough that calls are running when it happens, and that some fail in between. */
const UNDER_WAY_MS = 600;
const GONE_MS = 1_500;
const FROZEN_MS = 6_000;
/** While the engine does not respond, held sandboxes do. */
const HELD_ANSWER_MS = 5_000;

export async function engineRestart(yard: DockerYard): Promise<void> {
  const act = () => endedAndStarted(yard, "SIGTERM", false);
  await yard.deed("the engine restarted", act, { endsEverything: true });
}

export async function engineKill(yard: DockerYard): Promise<void> {
  const act = () => endedAndStarted(yard, "SIGKILL", false);
  await yard.deed("the engine killed", act, { endsEverything: true });
}

/**
 * An engine that leaves its containers running, whether it is killed or restarted: nothing is lost. Only an engine
 * started with that option leaves them, and one started without it ends the containers that it finds.
 */
export async function engineKillLiving(yard: DockerYard): Promise<void> {
  const endsEverything = true;
  const during = (signal: "SIGTERM" | "SIGKILL", keeps: boolean) => () => endedAndStarted(yard, signal, keeps);
  await yard.deed("the engine restarted to keep containers", during("SIGTERM", true), { endsEverything });
  await yard.deed("the engine killed, containers kept", during("SIGKILL", true));
  await yard.deed("the engine restarted, containers kept", during("SIGTERM", true));
  await yard.deed("the engine restarted as before", during("SIGTERM", false), { endsEverything });
}

async function endedAndStarted(yard: DockerYard, signal: "SIGTERM" | "SIGKILL", keeps: boolean): Promise<number> {
  const { engine } = yard;
  const load = new Load(yard, CALLERS);
  try {
    await load.served(performance.now());
    await sleep(UNDER_WAY_MS);
    await engine.end(signal);
    await sleep(GONE_MS);
    await engine.start(keeps);
    return await load.served(performance.now());
  } finally {
    await load.end();
  }
}

export async function engineFreeze(yard: DockerYard): Promise<void> {
  await yard.deed("the engine stopped for a while", async () => {
    const { engine } = yard;
    const load = new Load(yard, CALLERS);
    try {
      await load.served(performance.now());
      await sleep(UNDER_WAY_MS);
      engine.freeze();
      const frozenAt = performance.now();
      try {
        await heldWorks(yard, "an engine that stands still");
        await sleep(Math.max(0, FROZEN_MS - (performance.now() - frozenAt)));
      } finally {
        engine.thaw();
      }
      return await load.served(performance.now());
    } finally {
      await load.end();
    }
  });
}

export async function engineDiskFull(yard: DockerYard): Promise<void> {
  await yard.deed("the engine's disk full", async () => {
    const { engine } = yard;
    const load = new Load(yard, CALLERS);
    try {
      await load.served(performance.now());
      engine.fill();
      try {
        await heldWorks(yard, "a full disk");
        // New ones are created, or refused with a reason; either way the call ends.
        const leases = await Promise.all([0, 1].map((index) => yard.acquire({ thread: `full-${index}` })));
        for (const lease of leases) await lease?.release();
        await sleep(GONE_MS);
      } finally {
        engine.empty();
      }
      return await load.served(performance.now());
    } finally {
      await load.end();
      for (const index of [0, 1]) await yard.end(`full-${index}`);
    }
  });
}

async function heldWorks(yard: DockerYard, meanwhile: string): Promise<void> {
  const answer = await yard.settles(
    `a held sandbox, with ${meanwhile},`,
    yard.keeper.sandbox.exec("cat note"),
    HELD_ANSWER_MS,
  );
  if (answer?.stdout !== "kept\n") yard.tally.violated(`with ${meanwhile}, the keeper did not work`);
}
