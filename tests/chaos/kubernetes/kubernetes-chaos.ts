/**
 * Chaos on the cluster of `tests/cluster`: gateways are killed at every stage, pods and containers are ended by others,
 * a node is lost, and the API server, its watches and the store are away.
 *
 *   SANDLOT_TEST_CLUSTER=… npm run chaos -- --backend kubernetes --runs 200 [--seed S] [--only fleet|pod|node|outage]
 *
 * The seed decides which faults come, in which order and at which moment they are aimed. The machine decides how long
 * things take. `--whole-cluster` stops the API server itself; without it only the gateways' way to it is cut.
 */

import type { Random } from "../../simulation/schedule/random.ts";
import { fleetKills } from "../faults/fleet-kills.ts";
import type { Tally } from "../stage/tally.ts";
import { Cluster } from "./cluster.ts";
import type { Kind } from "./kinds.ts";
import { KubernetesEnvironment } from "./kubernetes-environment.ts";
import { NODE_FAULTS, nodeFault } from "./node-faults.ts";
import { OUTAGES, type Outage, outage } from "./outages.ts";
import { POD_FAULTS, podFault } from "./pod-faults.ts";

/** Of twenty runs. A node is lost and the API is away in at least one of twenty each. */
const OF_TWENTY: Readonly<Record<Exclude<Kind, "fleet">, number>> = { pod: 3.6, node: 1.2, outage: 2.2 };
/** One run that breaks off says little about the next; several say that there is nothing left to test. */
const BROKEN_MAX = 5;
/** So that every outage comes, and the API is away in every third. */
const OUTAGE_ORDER: readonly Outage[] = [
  "api away",
  "store restarted",
  "api silent",
  "watches expired",
  "api away",
  "api harmful",
];

export interface KubernetesRun {
  readonly runs: number;
  readonly random: Random;
  readonly tally: Tally;
  readonly isWanted: (kind: Kind) => boolean;
  readonly isWholeCluster: boolean;
  /** No run begins later than this after the first. */
  readonly limitMs: number;
}

/** A reason in place of an environment, where there is no cluster. */
export async function onKubernetes(run: KubernetesRun): Promise<KubernetesEnvironment | string> {
  const cluster = await Cluster.open(process.env.SANDLOT_TEST_CLUSTER);
  if (typeof cluster === "string") return cluster;
  const environment = await KubernetesEnvironment.prepare(cluster, run.random, run.tally);
  console.log(`namespace ${cluster.namespace}, faults of nodes on ${cluster.node}`);
  try {
    await environment.open();
    await faults(environment, run);
  } catch (error) {
    run.tally.violated(`the run ended: ${error instanceof Error ? error.stack : String(error)}`);
  } finally {
    await environment.close().catch((error: unknown) => run.tally.violated(`closing: ${error}`));
  }
  report(environment);
  return environment;
}

async function faults(environment: KubernetesEnvironment, run: KubernetesRun): Promise<void> {
  const { random, isWholeCluster } = run;
  let kills = 0;
  const order = OUTAGE_ORDER.map((one) => (isWholeCluster && one === "api away" ? "api server stopped" : one));
  const counts = {
    pod: random.between(0, POD_FAULTS.length * 2 - 1),
    node: random.between(0, NODE_FAULTS.length - 1),
    outage: 0,
  };
  let broken = 0;
  const begunAt = performance.now();
  for (const [index, kind] of plan(run).entries()) {
    if (performance.now() - begunAt > run.limitMs) {
      console.log(`ended by --minutes after ${index} of ${run.runs} runs`);
      return;
    }
    try {
      await one(index, kind);
    } catch (error) {
      run.tally.violated(`run ${index + 1} broke off: ${error instanceof Error ? error.stack : String(error)}`);
      broken += 1;
      if (broken >= BROKEN_MAX) throw error;
    }
    console.log(`run ${index + 1}: ${run.tally.violations.length} violations so far`);
  }

  async function one(index: number, kind: Kind): Promise<void> {
    if (kind === "fleet") {
      kills += 1;
      await fleetKills(environment, random, kills);
    }
    if (kind === "pod") {
      const count = counts.pod++;
      const fault = POD_FAULTS[count % POD_FAULTS.length] ?? "deleted";
      await podFault(environment, fault, count % (2 * POD_FAULTS.length) < POD_FAULTS.length, `pod-${index}`);
    }
    if (kind === "node") {
      const fault = NODE_FAULTS[counts.node++ % NODE_FAULTS.length] ?? "stopped";
      await nodeFault(environment, fault, `node-${index}`);
    }
    if (kind === "outage") await outage(environment, order[counts.outage++ % order.length] ?? "api away");
  }
}

/** The kinds of the runs, shuffled by the seed. */
function plan({ runs, random, isWanted }: Pick<KubernetesRun, "runs" | "random" | "isWanted">): readonly Kind[] {
  const share = (kind: "pod" | "node" | "outage") =>
    isWanted(kind) ? Math.max(1, Math.round((runs * OF_TWENTY[kind]) / 20)) : 0;
  const others = (["pod", "node", "outage"] as const)
    .flatMap((kind) => Array<Kind>(share(kind)).fill(kind))
    .slice(0, runs);
  const rest = isWanted("fleet") ? Array<Kind>(runs - others.length).fill("fleet") : others.slice(0, 0);
  const all = [...others, ...rest];
  while (all.length < runs) all.push(all[all.length % others.length] ?? "pod");
  for (let index = all.length - 1; index > 0; index -= 1) {
    const other = random.between(0, index);
    [all[index], all[other]] = [all[other] as Kind, all[index] as Kind];
  }
  return all;
}

function report({ writers, ground, tally }: KubernetesEnvironment): void {
  const harm = [...ground.link.harm].map(([what, count]) => `${what} ${count}`).join(", ");
  console.log(`requests harmed: ${harm || "none"}`);
  const outages = OUTAGES.filter((kind) => kind.startsWith("api ") && kind !== "api harmful");
  const timesOf = (name: string) => tally.usableMs.get(name)?.length ?? 0;
  const apiAway = outages.reduce((sum, kind) => sum + timesOf(kind), 0);
  const nodesLost = NODE_FAULTS.reduce((sum, kind) => sum + timesOf(`a node's kubelet stopped: ${kind}`), 0);
  console.log(`API away ${apiAway} times, node lost ${nodesLost} times`);
  console.log(
    `writers checked ${writers.checkedCount} times: ${writers.doubleCount} double, ${writers.lostCount} acknowledged lines lost`,
  );
}
