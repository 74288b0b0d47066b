/**
 * Processes of the fleet are killed (SIGKILL) while they make, bind, lease, release and end a sandbox. Whoever waits for the same
 * thread elsewhere gets it, with what was written in it; everything half-made goes, also the process that carries a way out.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { Random } from "../../simulation/schedule/random.ts";
import type { Order } from "../fleet-process.ts";
import { Starts } from "../stage/starts.ts";
import { KILL_STAGES, type KillStage } from "../stage/tally.ts";
import type { Yard } from "../stage/yard.ts";

const PROGRAM = fileURLToPath(new URL("../fleet-process.ts", import.meta.url));
const OPEN_MS = 60_000;
const REACH_MS = 60_000;
/** How long each stage takes on a quiet machine; what was measured takes its place. */
const SPANS_MS: Record<KillStage, number> = { create: 250, bind: 20, ready: 150, lease: 150, release: 4, stop: 120 };
/** A stage of a few milliseconds is over, often, when the signal arrives: such a kill counts for no stage. */
const TURNS_PER_KILL = 3;
/** How often a sandbox has a way out. */
const ONLINE_CHANCE = 0.3;
/** What carries a way out ends with its container. */
const CARRIER_MS = 20_000;
/** The stage that a word begins. */
const BEGINS: Readonly<Record<string, KillStage | "between">> = {
  create: "create",
  bind: "bind",
  lease: "lease",
  wrote: "lease",
  release: "release",
  released: "between",
  stop: "stop",
  stopped: "between",
  refused: "between",
};

/** Kills until there were `count`, and every stage was hit equally often, as far as the machine lets it. */
export async function fleetKills(yard: Yard, random: Random, count: number): Promise<void> {
  const { tally } = yard;
  const starts = await Starts.open(yard);
  let next = new Victim(yard, starts);
  try {
    for (let turn = 0; turn < count * TURNS_PER_KILL && killCount(tally) < count; turn += 1) {
      const victim = next;
      await victim.opened;
      next = new Victim(yard, starts);
      const stage = KILL_STAGES.reduce((least, other) => (tally.kills[other] < tally.kills[least] ? other : least));
      await yard.deed(`a fleet killed at ${stage}`, () => killAt(yard, victim, stage, random, `victim-${turn}`));
      await noProcessLeft(yard, starts);
      if ((turn + 1) % 20 === 0) console.log(`of ${count} fleets, killed: ${JSON.stringify(tally.kills)}`);
    }
  } finally {
    next.killNow();
    starts.close();
  }
}

/** Both at once, as when the power fails: a fleet at some stage, and the engine with everything that runs in it. */
export async function powerCut(yard: Yard, random: Random, serial: number): Promise<void> {
  const starts = await Starts.open(yard);
  const victim = new Victim(yard, starts);
  try {
    await victim.opened;
    const stage = random.pick(KILL_STAGES);
    const act = () => killAt(yard, victim, stage, random, `power-${serial}`, () => yard.engine.end("SIGKILL"));
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
  also: (() => Promise<void>) | null = null,
): Promise<number> {
  const blueprint = aim === "bind" ? "pooled" : random.chance(ONLINE_CHANCE) ? "online" : "default";
  const ms = random.unit() * SPANS_MS[aim];
  // It does not know itself when its container has started.
  const isTold = aim !== "ready";
  victim.go({ thread, blueprint, kill: isTold ? { after: aim, ms } : null });
  await victim.reaches(aim);
  // Every second time somebody waits for the same thread when it happens.
  const waiting = random.chance(0.5) ? yard.acquire({ thread, blueprint }) : null;
  if (!isTold) await sleep(ms);
  const together = also?.();
  await (isTold ? victim.exited : victim.kill());
  let killedAt = performance.now();
  const { stage, hasWritten, spans } = victim;
  if (stage !== "between" && also === null) yard.tally.kills[stage] += 1;
  for (const [name, ms] of spans) if (name !== "between") SPANS_MS[name] = SPANS_MS[name] * 0.7 + ms * 0.3;
  if (together !== undefined) {
    await together;
    await yard.engine.start(false);
    killedAt = performance.now();
  }
  const usableMs = await yard.usable(thread, killedAt, hasWritten ? "written" : null, await waiting, blueprint);
  await yard.end(thread);
  return usableMs;
}

/** In the network of a container that is gone, nothing may be left that runs. */
async function noProcessLeft(yard: Yard, starts: Starts): Promise<void> {
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

class Victim {
  readonly opened: Promise<void>;
  readonly #process: ChildProcess;
  readonly #starts: Starts;
  readonly exited: Promise<unknown>;
  #stage: KillStage | "between" = "create";
  #enteredAt = 0;
  #onStage: (stage: KillStage | "between") => void = () => {};
  hasWritten = false;
  /** How long each stage took that it left. */
  readonly spans: [KillStage | "between", number][] = [];

  constructor({ config, engine }: Yard, starts: Starts) {
    this.#starts = starts;
    const env = { ...process.env, NODE_COMPILE_CACHE: `${engine.place}/compiled` };
    this.#process = spawn(process.execPath, ["--conditions=sandlot-source", PROGRAM, JSON.stringify(config)], {
      stdio: ["pipe", "pipe", "inherit"],
      env,
    });
    this.exited = new Promise((resolve) => this.#process.once("close", resolve));
    this.#process.stdin?.on("error", () => {});
    this.opened = new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error("a fleet did not open")), OPEN_MS);
      late.unref();
      this.#process.once("exit", () => reject(new Error("a fleet ended by itself")));
      if (this.#process.stdout === null) return;
      createInterface({ input: this.#process.stdout }).on("line", (word) => {
        if (word === "wrote") this.hasWritten = true;
        if (word === "open") {
          clearTimeout(late);
          resolve();
        }
        const stage = BEGINS[word];
        if (stage !== undefined) this.#enter(stage);
      });
    });
    // A victim that is never asked for is not waited for.
    this.opened.catch(() => {});
  }

  get stage(): KillStage | "between" {
    return this.#stage;
  }

  go(order: Order): void {
    this.#starts.listener = () => {
      if (this.#stage === "create") this.#enter("ready");
    };
    this.#process.stdin?.write(`${JSON.stringify(order)}\n`);
  }

  async reaches(aim: KillStage): Promise<void> {
    const reached = new Promise<void>((resolve) => {
      this.#onStage = (stage) => stage === aim && resolve();
      if (this.#enteredAt > 0 && this.#stage === aim) resolve();
    });
    const timer = new AbortController();
    const late = sleep(REACH_MS, "late", { signal: timer.signal }).catch(() => "on time");
    const ended = this.exited.then(() => "ended");
    const answer = await Promise.race([reached, late, ended]);
    timer.abort();
    if (answer === "late" || answer === "ended") throw new Error(`a fleet ${answer} before it came to ${aim}`);
  }

  async kill(): Promise<void> {
    this.killNow();
    await this.exited;
  }

  killNow(): void {
    this.#starts.listener = () => {};
    this.#process.kill("SIGKILL");
  }

  #enter(stage: KillStage | "between"): void {
    const now = performance.now();
    if (this.#enteredAt > 0 && stage !== this.#stage) this.spans.push([this.#stage, now - this.#enteredAt]);
    if (stage !== this.#stage || this.#enteredAt === 0) this.#enteredAt = now;
    this.#stage = stage;
    this.#onStage(stage);
  }
}
