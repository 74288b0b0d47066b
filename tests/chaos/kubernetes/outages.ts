/**
 * Faults of what all gateways need: the API server, the watches of it, and the store. Callers are at work meanwhile.
 * Held leases go on, every acquire settles, and afterwards every caller is served.
 */

import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { Load } from "../faults/load.ts";
import type { KubernetesEnvironment } from "./kubernetes-environment.ts";

export const OUTAGES = [
  "api away",
  "api silent",
  "api server stopped",
  "api harmful",
  "watches expired",
  "store restarted",
] as const;
export type Outage = (typeof OUTAGES)[number];

const CALLERS = 2;
const AWAY_MS = 30_000;
const HARMFUL_MS = 10_000;
const STORE_AWAY_MS = 2_000;
const WARM_MS = 3_000;
const EXEC_MS = 30_000;

export async function outage(environment: KubernetesEnvironment, kind: Outage): Promise<void> {
  await environment.fault(kind, async () => {
    const load = new Load(environment, CALLERS);
    try {
      await sleep(WARM_MS);
      await strike(environment, kind);
      return await load.served(performance.now());
    } finally {
      environment.ground.link.set("open");
      await load.end();
    }
  });
}

async function strike(environment: KubernetesEnvironment, kind: Outage): Promise<void> {
  const { link, store, cluster } = environment.ground;
  switch (kind) {
    case "api away":
    case "api silent":
      link.set(kind === "api away" ? "away" : "silent");
      await keeperGoesOn(environment, AWAY_MS);
      return link.set("open");
    case "api server stopped":
      cluster.stopApi();
      try {
        await keeperGoesOn(environment, AWAY_MS);
      } finally {
        cluster.startApi();
      }
      return;
    case "api harmful":
      link.set("harmful");
      await keeperGoesOn(environment, HARMFUL_MS);
      return link.set("open");
    case "watches expired":
      link.expireWatches(3);
      return keeperGoesOn(environment, WARM_MS);
    case "store restarted":
      await store.kill();
      await sleep(STORE_AWAY_MS);
      await store.start();
  }
}

async function keeperGoesOn(environment: KubernetesEnvironment, ms: number): Promise<void> {
  const deadline = performance.now() + ms;
  while (performance.now() < deadline) {
    const asked = environment.keeper.sandbox.exec("cat note");
    const answer = await environment.settles("a command of the keeper", asked, EXEC_MS);
    if (answer?.stdout !== "kept\n") environment.tally.violated(`the keeper answered ${JSON.stringify(answer)}`);
    await sleep(500);
  }
}
