/**
 * From the acquire of a new thread to the end of its first command, with a blank and without one, against the Engine
 * API.
 */

import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type Docker from "dockerode";
import type { Fleet, Lease } from "../../../packages/fleet/src/fleet.ts";
import { interleave, type Subject } from "../../measuring/interleave.ts";
import { compare, type Result } from "../../measuring/result.ts";
import type { SuiteOptions } from "../suite.ts";
import { engineExec, LIMITS, type Stage } from "./stage.ts";

const BLANK_LIMIT = 1 / 40;
const COLD_LIMIT = 1.25;
/** Blanks of one timing, one after another: a single one, after a pause, would measure how the machine wakes up. */
const POOL = 6;
const PATIENCE_MS = 60_000;

export async function* blankAcquire(stage: Stage, { quick }: SuiteOptions): AsyncGenerator<Result> {
  await using opened = await stage.fleet({
    blueprints: { default: { limits: LIMITS } },
    pool: { default: POOL },
    housekeepingIntervalMs: 1_000,
  });
  const { fleet } = opened;
  const poolIsFull = async () => {
    const deadline = Date.now() + PATIENCE_MS;
    while ((await fleet.list()).filter(({ state }) => state === "blank").length < POOL) {
      if (Date.now() > deadline) throw new Error("The pool was not filled.");
      await sleep(20);
    }
    // The newest sandbox is still starting inside.
    await sleep(200);
  };
  const subjects = [acquiring("acquire a blank and exec", fleet, poolIsFull), engineCold(stage, poolIsFull)];
  const [ours, theirs] = await interleave(subjects, {
    rounds: quick ? 4 : 12,
    batch: POOL,
    timingsPerRound: 1,
    warmUp: POOL,
  });
  if (ours === undefined || theirs === undefined) throw new Error("A side is missing.");
  const about = "the pool is full before each timing; the other side makes, starts and execs through the Engine API";
  yield compare({ name: "docker-blank-acquire-first-exec", limit: BLANK_LIMIT, about }, ours, theirs);
}

export async function* coldAcquire(stage: Stage, { quick }: SuiteOptions): AsyncGenerator<Result> {
  await using opened = await stage.fleet();
  using server = bareServer(stage);
  const subjects = [acquiring("acquire, cold", opened.fleet, null, false), server.subject];
  const [ours, theirs] = await interleave(subjects, {
    rounds: quick ? 6 : 20,
    batch: 1,
    timingsPerRound: 1,
    warmUp: 1,
  });
  if (ours === undefined || theirs === undefined) throw new Error("A side is missing.");
  const about = "a ready sandbox, against create + start + first answer of a bare node:http server on a shared socket";
  yield compare({ name: "docker-cold-acquire", limit: COLD_LIMIT, about }, ours, theirs);
}

function acquiring(name: string, fleet: Fleet, ready: (() => Promise<void>) | null, exec = true): Subject {
  let serial = 0;
  const made: { readonly thread: string; readonly lease: Lease }[] = [];
  return {
    name,
    prepare: async () => ready?.(),
    run: async (count) => {
      for (let done = 0; done < count; done += 1) {
        const thread = `thread-${++serial}`;
        const lease = await fleet.acquire({ thread });
        made.push({ thread, lease });
        if (exec) await lease.sandbox.exec(["/bin/true"]);
      }
    },
    settle: async () => {
      for (const { thread, lease } of made.splice(0)) {
        await lease.release();
        await fleet.destroy({ thread }, { purge: true });
      }
    },
  };
}

/** The same hardening and limits as the fleet's. */
function hardened(stage: Stage, more: Docker.ContainerCreateOptions): Docker.ContainerCreateOptions {
  const { memoryBytes, pidsMax, cpuCount } = LIMITS;
  return {
    Image: stage.image,
    User: "59999:59999",
    ...more,
    HostConfig: {
      NetworkMode: "none",
      ReadonlyRootfs: true,
      CapDrop: ["ALL"],
      SecurityOpt: ["no-new-privileges"],
      Memory: memoryBytes,
      MemorySwap: memoryBytes,
      PidsLimit: pidsMax,
      NanoCpus: cpuCount * 1e9,
      Tmpfs: { "/tmp": "rw,exec,nosuid,nodev,size=64m", "/home/sandbox": "rw,exec,nosuid,nodev,size=64m" },
      ...more.HostConfig,
    },
  };
}

function engineCold(stage: Stage, ready: () => Promise<void>): Subject {
  const made: Docker.Container[] = [];
  return {
    name: "create + start + exec",
    prepare: ready,
    run: async (count) => {
      for (let done = 0; done < count; done += 1) {
        const container = await stage.docker.createContainer(hardened(stage, { Cmd: ["sleep", "1000"] }));
        made.push(container);
        await container.start();
        await engineExec(container, ["/bin/true"]);
      }
    },
    settle: async () => {
      for (const container of made.splice(0)) await container.remove({ force: true });
    },
  };
}

const SERVER = `require("node:http").createServer((_, response) => response.end("ok")).listen("/s/d")`;

/** Node and a one-line server that listens on a socket in a shared directory. */
function bareServer(stage: Stage): { readonly subject: Subject } & Disposable {
  const directory = mkdtempSync(join(tmpdir(), "sandlot-bench-bare-"));
  chmodSync(directory, 0o755);
  writeFileSync(join(directory, "server.cjs"), SERVER);
  let serial = 0;
  let container: Docker.Container | null = null;
  let shared = "";
  const run = async () => {
    const bind = (Source: string, Target: string, ReadOnly: boolean) => ({
      Type: "bind" as const,
      Source,
      Target,
      ReadOnly,
    });
    const Mounts = [
      bind(process.execPath, "/run/bare/runtime", true),
      bind(directory, "/run/bare/server", true),
      bind(shared, "/s", false),
    ];
    const Cmd = ["/run/bare/runtime", "/run/bare/server/server.cjs"];
    container = await stage.docker.createContainer(hardened(stage, { Cmd, HostConfig: { Mounts } }));
    await container.start();
    const deadline = Date.now() + PATIENCE_MS;
    while (!(await answers(join(shared, "d")))) {
      if (Date.now() > deadline) throw new Error("The bare server did not answer.");
      await sleep(1);
    }
  };
  const subject: Subject = {
    name: "create + start + first answer of node:http",
    prepare: async () => {
      shared = join(directory, String(++serial));
      mkdirSync(shared, { mode: 0o777 });
      chmodSync(shared, 0o777);
    },
    run,
    settle: async () => {
      await container?.remove({ force: true });
    },
  };
  return { subject, [Symbol.dispose]: () => rmSync(directory, { recursive: true, force: true }) };
}

function answers(socketPath: string): Promise<boolean> {
  return new Promise((resolve) => {
    const asked = request({ socketPath, path: "/" }, (response) => {
      response.resume();
      response.once("end", () => resolve(true));
    });
    asked.once("error", () => resolve(false));
    asked.end();
  });
}
