/**
 * A gateway that is measured: a fleet with its HTTP routes, and a way to ask what it has cost.
 *
 *   node --conditions=sandlot-source gateway-process.ts '<config>'     stdin: one `Order` a line; stdout: one answer a line
 *
 * Requests to the API server are counted where they are sent, so nothing stands between the gateway and the cluster.
 */

import { subscribe } from "node:diagnostics_channel";
import type { ClientRequest } from "node:http";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { startGateway } from "../../packages/fleet/src/gateway/start-gateway.ts";
import { openFleet } from "../../packages/fleet/src/open-fleet.ts";
import { systemWorld } from "../../packages/fleet/src/world/system-world.ts";

export type Order =
  /** Threads `<prefix>0` to `<prefix>count-1`, so many at once, begun at most at `perSecond`. They stay, parked. */
  | {
      readonly do: "create";
      readonly prefix: string;
      readonly count: number;
      readonly perSecond: number;
      readonly atOnce: number;
    }
  | { readonly do: "cost" }
  | { readonly do: "audit" }
  | { readonly do: "destroy"; readonly atOnce: number };

export interface Cost {
  readonly residentBytes: number;
  readonly heapBytes: number;
  readonly processorMs: number;
  readonly requests: Readonly<Record<string, number>>;
}

const { config, apiHost } = JSON.parse(process.argv[2] ?? "{}");
const requests = new Map<string, number>();
subscribe("http.client.request.start", (message) => {
  const { request } = message as { readonly request: ClientRequest };
  if (request.getHeader("host") !== apiHost) return;
  const kind = /watch=1/.test(request.path) ? "WATCH" : request.method;
  const [, resource = "other"] = /\/namespaces\/[^/]+\/([a-z]+)/.exec(request.path) ?? [];
  const name = `${kind} ${resource}`;
  requests.set(name, (requests.get(name) ?? 0) + 1);
});

const fleet = await openFleet(config);
const gateway = await startGateway({ fleet, home: config.home, world: systemWorld(), settings: { port: 0 } });
process.stdout.write(`${JSON.stringify({ url: gateway.url })}\n`);
for await (const line of createInterface({ input: process.stdin })) {
  const answer = await obeyed(JSON.parse(line)).catch((error: unknown) => ({ error: String(error) }));
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await gateway.close();
await fleet.close();
process.exit(0);

async function obeyed(order: Order): Promise<object> {
  if (order.do === "cost") return cost();
  if (order.do === "audit") {
    const startedAt = performance.now();
    const before = process.cpuUsage();
    const findings = await fleet.audit();
    const { user, system } = process.cpuUsage(before);
    const listed = await fleet.list();
    const ms = performance.now() - startedAt;
    return { findings: findings.length, listed: listed.length, ms, processorMs: (user + system) / 1_000 };
  }
  const failures = new Map<string, number>();
  const acquired: number[] = [];
  const startedAt = performance.now();
  if (order.do === "create") {
    const { prefix, count, perSecond, atOnce } = order;
    await inTurns(
      count,
      atOnce,
      async (index) => {
        await sleep(Math.max(0, startedAt + (index * 1_000) / perSecond - performance.now()));
        const begunAt = performance.now();
        const lease = await fleet.acquire({ thread: `${prefix}${index}` });
        acquired.push(performance.now() - begunAt);
        await lease.release();
      },
      failures,
    );
  } else {
    const threads = (await fleet.list()).flatMap(({ thread }) => (thread === null ? [] : [thread]));
    await inTurns(
      threads.length,
      order.atOnce,
      async (index) => {
        await fleet.destroy({ thread: threads[index] ?? "" }, { purge: true, force: true });
      },
      failures,
    );
  }
  const seconds = (performance.now() - startedAt) / 1_000;
  const sorted = acquired.toSorted((a, b) => a - b);
  const at = (share: number) => Math.round(sorted[Math.floor((sorted.length - 1) * share)] ?? 0);
  return { seconds, done: acquired.length, failures: Object.fromEntries(failures), p50Ms: at(0.5), p99Ms: at(0.99) };
}

function cost(): Cost {
  const { user, system } = process.cpuUsage();
  const { rss, heapUsed } = process.memoryUsage();
  return {
    ...{ residentBytes: rss, heapBytes: heapUsed, processorMs: (user + system) / 1_000 },
    requests: Object.fromEntries(requests),
  };
}

/** Every failure is counted by its code; the others go on. */
async function inTurns(
  count: number,
  atOnce: number,
  act: (index: number) => Promise<void>,
  failures: Map<string, number>,
): Promise<void> {
  let next = 0;
  const work = async () => {
    while (next < count) {
      const index = next++;
      try {
        await act(index);
      } catch (error) {
        const code = (error as { readonly code?: string }).code ?? String(error);
        failures.set(code, (failures.get(code) ?? 0) + 1);
      }
    }
  };
  await Promise.all(Array.from({ length: atOnce }, work));
}
