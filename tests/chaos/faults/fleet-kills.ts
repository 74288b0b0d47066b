/**
 * Kills (SIGKILL) processes of the fleet while they create, bind, lease, release and end a sandbox. Another caller of
 * the same thread gets it, with everything written in it; everything half-made is removed, including the egress
 * process.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { Random } from "../../simulation/schedule/random.ts";
import type { DockerEnvironment } from "../stage/docker-environment.ts";
import type { Environment } from "../stage/environment.ts";
import type { KillStage } from "../stage/tally.ts";
import { type StartWatch, Target } from "../stage/target.ts";

/** How long each stage takes on a quiet machine; measured values replace it. */
const SPANS_MS: Record<KillStage, number> = { create: 250, bind: 20, ready: 150, lease: 150, release: 4, stop: 120 };
/** A stage of a few milliseconds is often over when the signal arrives: such a kill counts for no stage. */
const TURNS_PER_KILL = 3;
/** How often a sandbox has egress. */
const ONLINE_CHANCE = 0.3;
/** The egress process ends with its container. */
const CARRIER_MS = 20_000;
/** Every killed fleet has a thread of its own. */
let serial = 0;

/** Kills until there were `count`, and every stage was hit equally often, as far as the machine allows. */
export async function fleetKills(environment: Environment, random: Random, count: number): Promise<void> {
  const { tally, stages } = environment;
  const starts = await environment.watchStarts();
  const wanted = count - killCount(tally);
  let next: Target | null = new Target(environment, starts);
  try {
    for (let turn = 0; turn < wanted * TURNS_PER_KILL && killCount(tally) < count; turn += 1) {
      const target: Target = next ?? new Target(environment, starts);
      await target.opened;
      // The next one opens meanwhile, unless this is probably the last.
      next = killCount(tally) + 1 < count ? new Target(environment, starts) : null;
      const stage = stages.reduce((least, other) => (tally.kills[other] < tally.kills[least] ? other : least));
      // Named by the intended stage; the tally counts the actual one.
      await environment.fault(`a fleet killed near ${stage}`, () =>
        killAt(environment, target, stage, random, `victim-${serial++}`),
      );
      await noProcessLeft(environment, starts);
      if ((turn + 1) % 20 === 0) console.log(`of ${count} fleets, killed: ${JSON.stringify(tally.kills)}`);
    }
  } finally {
    next?.killNow();
    starts.close();
  }
}

/** Both at once, as in a power failure: a fleet at some stage, and the engine with everything that runs in it. */
export async function powerCut(environment: DockerEnvironment, random: Random, serial: number): Promise<void> {
  const { engine } = environment;
  const starts = await environment.watchStarts();
  const target = new Target(environment, starts);
  try {
    await target.opened;
    const stage = random.pick(environment.stages);
    const power = { cut: () => engine.end("SIGKILL"), back: () => engine.start(false) };
    const act = () => killAt(environment, target, stage, random, `power-${serial}`, power);
    await environment.fault("a fleet and the engine killed at once", act, { endsEverything: true });
  } finally {
    target.killNow();
    starts.close();
  }
}

async function killAt(
  environment: Environment,
  target: Target,
  aim: KillStage,
  random: Random,
  thread: string,
  power: { readonly cut: () => Promise<void>; readonly back: () => Promise<void> } | null = null,
): Promise<number> {
  const blueprint =
    aim === "bind" ? "pooled" : environment.shape.hasEgress && random.chance(ONLINE_CHANCE) ? "online" : "default";
  const ms = random.unit() * SPANS_MS[aim];
  // The process does not know when its container has started.
  const isTold = aim !== "ready";
  const { writer } = environment;
  target.go({ thread, blueprint, writer, kill: isTold ? { after: aim, ms } : null });
  await target.reaches(aim);
  // Every second time another caller waits for the same thread.
  const waiting = random.chance(0.5) ? environment.acquire({ thread, blueprint }) : null;
  if (!isTold) await sleep(ms);
  const cut = power?.cut();
  await (isTold ? target.exited : target.kill());
  let killedAt = performance.now();
  const { stage, hasWritten, spans } = target;
  if (stage !== "between" && power === null) environment.tally.kills[stage] += 1;
  for (const [name, ms] of spans) if (name !== "between") SPANS_MS[name] = SPANS_MS[name] * 0.7 + ms * 0.3;
  if (power !== null) {
    await cut;
    await power.back();
    killedAt = performance.now();
  }
  const usableMs = await environment.usable(thread, killedAt, hasWritten ? "written" : null, await waiting, blueprint);
  await environment.end(thread);
  return usableMs;
}

/** In the network of a removed container no process may be left. */
async function noProcessLeft(environment: Environment, starts: StartWatch): Promise<void> {
  const deadline = performance.now() + CARRIER_MS;
  for (;;) {
    const left = await starts.strays();
    if (left.length === 0) return;
    if (performance.now() > deadline) return environment.tally.violated(`processes are left: ${left.join(", ")}`);
    await sleep(100);
  }
}

function killCount({ kills }: Environment["tally"]): number {
  return Object.values(kills).reduce((sum, hits) => sum + hits, 0);
}
