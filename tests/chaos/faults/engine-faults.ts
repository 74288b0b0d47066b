/**
 * Faults of the engine under load: restarted, killed, paused for a while, and its disk filled. A missing response is
 * never taken for a death, every call settles, and afterwards every caller is served.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { DockerEnvironment } from "../stage/docker-environment.ts";
import { Load } from "./load.ts";

const CALLERS = 3;
/** Long enough that calls are running when it happens, and that some fail in between. */
const UNDER_WAY_MS = 600;
const GONE_MS = 1_500;
const FROZEN_MS = 6_000;
/** While the engine does not respond, held sandboxes do. */
const HELD_ANSWER_MS = 5_000;

export async function engineRestart(environment: DockerEnvironment): Promise<void> {
  const act = () => endedAndStarted(environment, "SIGTERM", false);
  await environment.fault("the engine restarted", act, { endsEverything: true });
}

export async function engineKill(environment: DockerEnvironment): Promise<void> {
  const act = () => endedAndStarted(environment, "SIGKILL", false);
  await environment.fault("the engine killed", act, { endsEverything: true });
}

/**
 * An engine that leaves its containers running, whether it is killed or restarted: nothing is lost. Only an engine
 * started with that option leaves them, and one started without it ends the containers that it finds.
 */
export async function engineKillLiving(environment: DockerEnvironment): Promise<void> {
  const endsEverything = true;
  const during = (signal: "SIGTERM" | "SIGKILL", keeps: boolean) => () => endedAndStarted(environment, signal, keeps);
  await environment.fault("the engine restarted to keep containers", during("SIGTERM", true), { endsEverything });
  await environment.fault("the engine killed, containers kept", during("SIGKILL", true));
  await environment.fault("the engine restarted, containers kept", during("SIGTERM", true));
  await environment.fault("the engine restarted as before", during("SIGTERM", false), { endsEverything });
}

async function endedAndStarted(
  environment: DockerEnvironment,
  signal: "SIGTERM" | "SIGKILL",
  keeps: boolean,
): Promise<number> {
  const { engine } = environment;
  const load = new Load(environment, CALLERS);
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

export async function engineFreeze(environment: DockerEnvironment): Promise<void> {
  await environment.fault("the engine stopped for a while", async () => {
    const { engine } = environment;
    const load = new Load(environment, CALLERS);
    try {
      await load.served(performance.now());
      await sleep(UNDER_WAY_MS);
      engine.freeze();
      const frozenAt = performance.now();
      try {
        await heldWorks(environment, "an engine that stands still");
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

export async function engineDiskFull(environment: DockerEnvironment): Promise<void> {
  await environment.fault("the engine's disk full", async () => {
    const { engine } = environment;
    const load = new Load(environment, CALLERS);
    try {
      await load.served(performance.now());
      engine.fill();
      try {
        await heldWorks(environment, "a full disk");
        // New ones are created, or refused with a reason; either way the call ends.
        const leases = await Promise.all([0, 1].map((index) => environment.acquire({ thread: `full-${index}` })));
        for (const lease of leases) await lease?.release();
        await sleep(GONE_MS);
      } finally {
        engine.empty();
      }
      return await load.served(performance.now());
    } finally {
      await load.end();
      for (const index of [0, 1]) await environment.end(`full-${index}`);
    }
  });
}

async function heldWorks(environment: DockerEnvironment, meanwhile: string): Promise<void> {
  const answer = await environment.settles(
    `a held sandbox, with ${meanwhile},`,
    environment.keeper.sandbox.exec("cat note"),
    HELD_ANSWER_MS,
  );
  if (answer?.stdout !== "kept\n") environment.tally.violated(`with ${meanwhile}, the keeper did not work`);
}
