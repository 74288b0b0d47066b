/**
 * Faults of containers while they are created, leased and parked: killed, removed, paused, and out of memory. Running
 * commands report it, the next use works, and the workspace is unchanged.
 */

import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import type Docker from "dockerode";
import type { Lease } from "../../../packages/fleet/src/fleet.ts";
import type { DockerEnvironment } from "../stage/docker-environment.ts";
import { ORPHAN_TIMEOUT_MS } from "../stage/environment.ts";

interface ContainerFault {
  readonly name: string;
  readonly act: (container: Docker.Container, lease: Lease) => Promise<unknown>;
  /** Whether the sandbox and its commands survive. */
  readonly survives: boolean;
}

/** A running command gets its error within this time after its sandbox ended. */
const TOLD_MS = 15_000;
const STARVING_MS = 15_000;
const PAUSE_TRIES = 10;
/** After its grace period. */
const GONE_MS = 60_000;
const LOOK_MS = 100;

const UNDER_LEASE: readonly ContainerFault[] = [
  { name: "a leased container killed", act: (container) => container.kill(), survives: false },
  { name: "a leased container removed", act: (container) => container.remove({ force: true }), survives: false },
  { name: "a leased container paused", act: pause, survives: true },
  { name: "a leased container out of memory", act: runOutOfMemory, survives: false },
];

const PARKED: readonly ContainerFault[] = [
  { name: "a parked container killed", act: (container) => container.kill(), survives: false },
  { name: "a parked container removed", act: (container) => container.remove({ force: true }), survives: false },
  { name: "a parked container paused", act: pause, survives: true },
];

const IN_THE_MAKING: readonly { readonly name: string; readonly at: string; readonly act: ContainerFault["act"] }[] = [
  { name: "a new container removed", at: "create", act: (container) => container.remove({ force: true }) },
  { name: "a starting container removed", at: "start", act: (container) => container.remove({ force: true }) },
  { name: "a starting container killed", at: "start", act: (container) => container.kill() },
  { name: "a starting container paused", at: "start", act: (container) => container.pause() },
];

export async function containerFaults(environment: DockerEnvironment, rounds: number): Promise<void> {
  for (let round = 0; round < rounds; round += 1) {
    await leasedContainers(environment, round);
    for (const fault of PARKED)
      await environment.fault(fault.name, () => whileParked(environment, fault, `parked-${round}`));
    for (const fault of IN_THE_MAKING)
      await environment.fault(fault.name, () => inTheMaking(environment, fault, `made-${round}`));
    await environment.fault("an orphan by its labels, gone", () => orphaned(environment));
  }
}

export async function leasedContainers(environment: DockerEnvironment, round = 0): Promise<void> {
  for (const fault of UNDER_LEASE)
    await environment.fault(fault.name, () => underLease(environment, fault, `leased-${round}`));
}

async function underLease(
  environment: DockerEnvironment,
  { name, act, survives }: ContainerFault,
  thread: string,
): Promise<number> {
  const lease = await environment.fleet.acquire({ thread });
  const { generation } = lease;
  await lease.sandbox.exec("echo mine > note");
  const container = await environment.containerIn(thread);
  const running = lease.sandbox.exec("sleep 1; echo through").then(
    ({ stdout }) => stdout,
    () => "told",
  );
  await act(container, lease);
  const since = performance.now();
  const { ms: usableMs } = await environment.used(thread, since, "mine", lease);
  const told = await environment.settles("a command under way", running, TOLD_MS);
  if (survives && told !== "through\n") environment.tally.violated(`${name}: a command ended with ${told}`);
  if (survives !== (lease.generation === generation))
    environment.tally.violated(`${name}: the generation ${survives ? "changed" : "is the same"}`);
  await lease.release();
  await environment.end(thread);
  return usableMs;
}

async function whileParked(
  environment: DockerEnvironment,
  { name, act, survives }: ContainerFault,
  thread: string,
): Promise<number> {
  const lease = await environment.fleet.acquire({ thread });
  const { generation } = lease;
  await lease.sandbox.exec("echo mine > note");
  await lease.release();
  await act(await environment.containerIn(thread), lease);
  const since = performance.now();
  const next = await environment.acquire({ thread });
  if (next !== null && survives !== (next.generation === generation))
    environment.tally.violated(`${name}: the generation ${survives ? "changed" : "is the same"}`);
  const usableMs = await environment.usable(thread, since, "mine", next);
  await environment.end(thread);
  return usableMs;
}

/** The pending acquire is served or refused, and the next one is served. */
async function inTheMaking(
  environment: DockerEnvironment,
  fault: (typeof IN_THE_MAKING)[number],
  thread: string,
): Promise<number> {
  const { docker } = environment.engine;
  const filters = {
    type: ["container" as const],
    event: [fault.at],
    label: [`sandlot.fleet=${environment.fleetId}`, "sandlot.thread"],
  };
  const stream = await docker.getEvents({ filters });
  const done = new Promise<unknown>((resolve) => {
    stream.once("data", (line: Buffer) => {
      const { Actor } = JSON.parse(line.toString("utf8").split("\n", 1)[0] ?? "{}") as { Actor: { ID: string } };
      // The container may be further by then, and the engine may refuse: the fault was tried.
      resolve(fault.act(docker.getContainer(Actor.ID), environment.keeper).catch(() => {}));
    });
  });
  const since = performance.now();
  const waiting = environment.acquire({ thread });
  await done;
  (stream as unknown as { destroy(): void }).destroy();
  const usableMs = await environment.usable(thread, since, null, await waiting);
  await environment.end(thread);
  return usableMs;
}

/** A container with the fleet's labels and no record: removed, but only after its grace period. */
async function orphaned(environment: DockerEnvironment): Promise<number> {
  const sandboxId = randomBytes(5).toString("hex");
  const generation = String(Date.now());
  const labels = { fleet: environment.fleetId, sandbox: sandboxId, generation, blueprint: "unknown", place: "home" };
  const since = performance.now();
  const container = await environment.engine.docker.createContainer({
    ...{ Image: environment.engine.image, Cmd: ["sleep", "100000"], name: `sandlot-${sandboxId}-${generation}` },
    Labels: Object.fromEntries(Object.entries(labels).map(([name, value]) => [`sandlot.${name}`, value])),
    HostConfig: { NetworkMode: "none" },
  });
  await container.start();
  const isGone = () =>
    container.inspect().then(
      () => false,
      ({ statusCode }: { statusCode?: number }) => statusCode === 404,
    );
  while (!(await isGone())) {
    if (performance.now() - since > ORPHAN_TIMEOUT_MS + GONE_MS) throw new Error("an orphan is still there");
    await sleep(LOOK_MS);
  }
  const ms = performance.now() - since;
  if (ms < ORPHAN_TIMEOUT_MS - LOOK_MS) environment.tally.violated(`an orphan was ended after ${ms.toFixed(0)} ms`);
  return ms;
}

/** On a busy machine the engine may give up before the kernel has stopped every process. */
async function pause(container: Docker.Container): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await container.pause();
    } catch (error) {
      if (tries === PAUSE_TRIES || !String(error).includes("unable to freeze")) throw error;
      await sleep(LOOK_MS * tries);
    }
  }
}

/** Makes its first process the first that the kernel kills, before the command that takes all memory. */
async function runOutOfMemory(container: Docker.Container, lease: Lease): Promise<void> {
  const { State } = await container.inspect();
  // Requested before: the fleet removes the container when it notices the death.
  const ended = container.wait({ condition: "not-running" }).then(() => "ended");
  writeFileSync(`/proc/${State.Pid}/oom_score_adj`, "1000");
  const take = `exec perl -e 'my $x = "x" x (400 * 1024 * 1024); sleep 5'`;
  // The daemon marks a command as the first to be killed a moment after its start: only then can it remove the mark.
  await lease.sandbox
    .exec(`sleep 1; echo 0 > /proc/self/oom_score_adj; ${take}`, { timeoutMs: STARVING_MS })
    .catch(() => {});
  if ((await Promise.race([ended, sleep(STARVING_MS, "lives", { ref: false })])) === "lives")
    throw new Error("it did not end for want of memory");
}
