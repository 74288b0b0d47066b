/**
 * Kills (SIGKILL) processes of the fleet while they create, bind, lease, release and end a sandbox. Another caller of
 * the same thread gets it, with everything written in it; everything half-made is removed, including the egress
 * process.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { Random } from "../../simulation/schedule/random.ts";
import type { DockerYard } from "../stage/docker-yard.ts";
import type { KillStage } from "../stage/tally.ts";
import { type StartWatch, Victim } from "../stage/victim.ts";
import type { Yard } from "../stage/yard.ts";

/** How long each stage takes on a quiet machine; measured values replace it. */
const SPANS_MS: Record<KillStage, number> = { create: 250, bind: 20, ready: 150, lease: 150, release: 4, stop: 120 };
/** A stage of a few milliseconds is often over when the signal arrives: such a kill counts for no stage. */
const TURNS_PER_KILL = 3;
/** How often a sandbox has egress. */
const ONLINE_CHANCE = 0.3;
/** The egress process ends with its container. */
const CARRIER_MS = 20_000;

/** Kills until there were `count`, and every stage was hit equally often, as far as the machine allows. */
export async function fleetKills(yard: Yard, random: Random, count: number): Promise<void> {
  const { tally, stages } = yard;
  const starts = await yard.watchStarts();
  let next = new Victim(yard, starts);
  try {
    for (let turn = 0; turn < count * TURNS_PER_KILL && killCount(tally) < count; turn += 1) {
      const victim = next;
      await victim.opened;
      next = new Victim(yard, starts);
      const stage = stages.reduce((least, other) => (tally.kills[other] < tally.kills[least] ? other : least));
      // Named by the intended stage; the tally counts the actual one.
      await yard.deed(`a fleet killed near ${stage}`, () => killAt(yard, victim, stage, random, `victim-${turn}`));
      await noProcessLeft(yard, starts);
      if ((turn + 1) % 20 === 0) console.log(`of ${count} fleets, killed: ${JSON.stringify(tally.kills)}`);
    }
  } finally {
    next.killNow();
    starts.close();
  }
}

/** Both at once, as in a power failure: a fleet at some stage, and the engine with everything that runs in it. */
export async function powerCut(yard: DockerYard, random: Random, serial: number): Promise<void> {
  const { engine } = yard;
  const starts = await yard.watchStarts();
  const victim = new Victim(yard, starts);
  try {
    await victim.opened;
    const stage = random.pick(yard.stages);
    const power = { cut: () => engine.end("SIGKILL"), back: () => engine.start(false) };
    const act = () => killAt(yard, victim, stage, random, `power-${serial}`, power);
    await yard.deed("a fleet and the engine killed at once", act, { endsEverything: true });
  } finally {
    victim.killNow();
    starts.close();
  }
}

async function killAt(
  yard: Yard,
  victim: Victim,
  aim: KillStage,
  random: Random,
  thread: string,
  power: { readonly cut: () => Promise<void>; readonly back: () => Promise<void> } | null = null,
): Promise<number> {
  const blueprint = aim === "bind" ? "pooled" : random.chance(ONLINE_CHANCE) ? "online" : "default";
  const ms = random.unit() * SPANS_MS[aim];
  // The process does not know when its container has started.
  const isTold = aim !== "ready";
  victim.go({ thread, blueprint, kill: isTold ? { after: aim, ms } : null });
  await victim.reaches(aim);
  // Every second time another caller waits for the same thread.
  const waiting = random.chance(0.5) ? yard.acquire({ thread, blueprint }) : null;
  if (!isTold) await sleep(ms);
  const cut = power?.cut();
  await (isTold ? victim.exited : victim.kill());
  let killedAt = performance.now();
  const { stage, hasWritten, spans } = victim;
  if (stage !== "between" && power === null) yard.tally.kills[stage] += 1;
  for (const [name, ms] of spans) if (name !== "between") SPANS_MS[name] = SPANS_MS[name] * 0.7 + ms * 0.3;
  if (power !== null) {
    await cut;
    await power.back();
    killedAt = performance.now();
  }
  const usableMs = await yard.usable(thread, killedAt, hasWritten ? "written" : null, await waiting, blueprint);
  await yard.end(thread);
  return usableMs;
}

/** In the network of a removed container no process may be left. */
async function noProcessLeft(yard: Yard, starts: StartWatch): Promise<void> {
  const deadline = performance.now() + CARRIER_MS;
  for (;;) {
    const left = await starts.strays();
    if (left.length === 0) return;
    if (performance.now() > deadline) return yard.tally.violated(`processes are left: ${left.join(", ")}`);
    await sleep(100);
  }
}

function killCount({ kills }: Yard["tally"]): number {
  return Object.values(kills).reduce((sum, hits) => sum + hits, 0);
}
