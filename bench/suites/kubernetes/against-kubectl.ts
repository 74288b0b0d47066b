/** A new thread, from the pool and cold, and one command of a running sandbox, each against `kubectl`. */

import type { Lease } from "../../../packages/fleet/src/fleet.ts";
import { interleave, type Subject } from "../../measuring/interleave.ts";
import { compare, type Result } from "../../measuring/result.ts";
import type { SuiteOptions } from "../suite.ts";
import { type KubernetesStage, POOLED } from "./stage.ts";

const ROUNDS = { quick: 3, full: 12 };
const EXEC_ROUNDS = { quick: 5, full: 30 };

export async function* newThreads(stage: KubernetesStage, { quick }: SuiteOptions): AsyncGenerator<Result> {
  const plan = { rounds: quick ? ROUNDS.quick : ROUNDS.full, batch: 1, timingsPerRound: 1, warmUp: 1 };
  const subjects = [
    acquiring(stage, "a blank of the pool", POOLED),
    acquiring(stage, "a new pod", "default"),
    running(stage),
  ];
  const [blank, cold, kubectl] = await interleave(subjects, plan);
  if (blank === undefined || cold === undefined || kubectl === undefined) throw new Error("a side was not measured");
  const pooled = {
    name: "kubernetes-blank-acquire-first-exec",
    limit: 1 / 20,
    about: "a new thread from the pool with its first command : kubectl run, wait for Ready, exec",
  };
  yield compare(pooled, blank, kubectl);
  const created = {
    name: "kubernetes-cold-acquire-first-exec",
    limit: 1.3,
    about: "a new thread without a pool with its first command : kubectl run, wait for Ready, exec",
  };
  yield compare(created, cold, kubectl);
}

export async function* execRoundTrip(stage: KubernetesStage, { quick }: SuiteOptions): AsyncGenerator<Result> {
  const [thread, name] = [stage.newName(), stage.newName()];
  const lease = await stage.acquireAndExec(thread, "default");
  await stage.kubectlRun(name);
  await stage.settled();
  const subjects: Subject[] = [
    { name: "sandbox.exec", run: (count) => times(count, async () => void (await lease.sandbox.exec("true"))) },
    { name: "kubectl exec", run: (count) => times(count, () => stage.kubectlExec(name)) },
  ];
  const plan = { rounds: quick ? EXEC_ROUNDS.quick : EXEC_ROUNDS.full, batch: 1, timingsPerRound: 3, warmUp: 2 };
  const [ours, kubectl] = await interleave(subjects, plan);
  await stage.end(lease, thread);
  await stage.kubectlDelete(name);
  if (ours === undefined || kubectl === undefined) throw new Error("a side was not measured");
  const naming = {
    name: "kubernetes-exec-true",
    limit: 1 / 20,
    about: "one command through the library : kubectl exec",
  };
  yield compare(naming, ours, kubectl);
}

function acquiring(stage: KubernetesStage, name: string, blueprint: string): Subject {
  let lease: Lease | null = null;
  let thread = "";
  return {
    name,
    prepare: () => stage.settled(),
    async run() {
      thread = stage.newName();
      lease = await stage.acquireAndExec(thread, blueprint);
    },
    async settle() {
      if (lease !== null) await stage.end(lease, thread);
    },
  };
}

function running(stage: KubernetesStage): Subject {
  let name = "";
  return {
    name: "kubectl run",
    prepare: () => stage.settled(),
    async run() {
      name = stage.newName();
      await stage.kubectlRun(name);
    },
    settle: () => stage.kubectlDelete(name),
  };
}

async function times(count: number, act: () => Promise<void>): Promise<void> {
  for (let done = 0; done < count; done += 1) await act();
}
