/** Faults of processes: gateways that are killed or stop, sandboxes that are killed, a machine that sleeps. */

import { setTimeout as sleep } from "node:timers/promises";
import type { Fault } from "../fault.ts";
import { processTree } from "../stage/processes.ts";

/** More than a session's lifetime (15 s): an instance is given up meanwhile. */
const AWAY_MS = 20_000;
/** `npm run crash -- --store …`: instances are killed and stopped, and sandboxes killed, on each store. */
const CRASHES = "tests/crash/main.ts";

export const PROCESS_FAULTS: readonly Fault[] = [
  {
    kind: "gateway killed",
    how: "SIGKILL to one of two gateways; its callers ask the other one",
    detection: "the other gateway's event `instance-buried`",
    test: CRASHES,
    async strike({ gateways }) {
      gateways[0]?.signal("SIGKILL");
      const at = performance.now();
      await sleep(AWAY_MS / 4);
      return { at, shownBy: ["instance-buried"] };
    },
  },
  {
    kind: "gateway stopped",
    how: "SIGSTOP to one of two gateways for 20 s; its callers ask the other one after their own patience of 3 s",
    detection: "the first call that runs out of patience",
    test: CRASHES,
    async strike({ gateways }) {
      const at = performance.now();
      gateways[0]?.signal("SIGSTOP");
      await sleep(AWAY_MS);
      gateways[0]?.signal("SIGCONT");
      return { at };
    },
  },
  {
    kind: "sandbox killed",
    how: "SIGKILL to all processes of one of eight sandboxes",
    detection: "an event `sandbox-lost`, or `sandbox-stopping` at the next use of a parked one",
    test: "tests/chaos/faults/process-faults.ts",
    testsOf: { postgres: CRASHES, redis: CRASHES },
    async strike(stage) {
      const [sandbox] = await stage.sandboxes();
      if (sandbox === undefined) throw new Error("there is no sandbox");
      const at = performance.now();
      // The others end with the first process of their namespace.
      process.kill(sandbox, "SIGKILL");
      return { at, shownBy: ["sandbox-lost", "sandbox-stopping"] };
    },
  },
  {
    kind: "machine suspended",
    how: "SIGSTOP to gateways and sandboxes for 20 s, counted from SIGCONT; unlike a real suspend the monotonic clock runs on",
    detection: "a gateway's event `instance-doubted`",
    test: "packages/fleet/test/lifecycle/session/burial.test.ts",
    testsOf: { postgres: CRASHES, redis: CRASHES },
    async strike(stage) {
      const roots = [...stage.gateways.map(({ pid }) => pid), ...(await stage.sandboxes())];
      const pids = new Set(roots.flatMap(processTree));
      for (const pid of pids) process.kill(pid, "SIGSTOP");
      await sleep(AWAY_MS);
      const at = performance.now();
      for (const pid of pids) process.kill(pid, "SIGCONT");
      await sleep(1_000);
      return { at, shownBy: ["instance-doubted"] };
    },
  },
];
