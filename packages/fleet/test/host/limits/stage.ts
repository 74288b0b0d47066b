/**
 * A place to try limits in: a fleet's own groups, programs run through a group's start prefix, and the check that
 * nothing is left.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { FleetId } from "@sandlot/contract";
import { expect, type TestContext } from "vitest";
import { type LimitGroup, type Limits, openLimits } from "../../../src/host/limits/index.ts";
import { systemWorld } from "../../../src/world/system-world.ts";

/** How many times slower than usual this machine may be: an emulated kernel is slower at everything. */
export const PATIENCE = Number(process.env.SANDLOT_TEST_PATIENCE ?? 1);

export const STANDIN = fileURLToPath(new URL("./daemon-standin.mjs", import.meta.url));

export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export class LimitStage {
  readonly fleetId = `test-${randomBytes(6).toString("hex")}` as FleetId;
  readonly limits: Limits;
  readonly #groups: LimitGroup[] = [];
  readonly #children: ChildProcess[] = [];

  constructor(options: { controlGroups?: "auto" | "never" } = {}) {
    this.limits = openLimits({ fleetId: this.fleetId, world: systemWorld(), ...options });
  }

  group(requested: Parameters<Limits["create"]>[1], name = `sandbox-${this.#groups.length}`): LimitGroup {
    const group = this.limits.create(name, requested);
    this.#groups.push(group);
    return group;
  }

  start(group: LimitGroup, argv: readonly string[], options: { uid?: number; gid?: number } = {}): ChildProcess {
    const [file = "", ...args] = [...group.startPrefix, ...argv];
    const child = spawn(file, args, { stdio: ["ignore", "pipe", "pipe"], ...options });
    this.#children.push(child);
    return child;
  }

  run(group: LimitGroup, argv: readonly string[], options: { uid?: number; gid?: number } = {}): Promise<Ended> {
    return outcome(this.start(group, argv, options));
  }

  async close(): Promise<void> {
    for (const group of this.#groups) group.killExcept([]);
    for (const child of this.#children) if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
    for (const group of this.#groups) await group.release();
    expect(this.limits.findGroups()).toEqual([]);
    this.limits.close();
    expect(groupDirectories(this.fleetId).filter(existsSync)).toEqual([]);
  }
}

/** The place of a fleet's groups: a tree for each controller in version 1, one for all in version 2. */
export function groupDirectories(fleetId: FleetId): readonly string[] {
  return ["memory", "cpu", "pids", "cpuacct", ""].map((tree) => `/sys/fs/cgroup/${tree}/sandlot/${fleetId}`);
}

function outcome(child: ChildProcess): Promise<Ended> {
  const text = { stdout: "", stderr: "" };
  child.stdout?.setEncoding("utf8").on("data", (chunk: string) => {
    text.stdout += chunk;
  });
  child.stderr?.setEncoding("utf8").on("data", (chunk: string) => {
    text.stderr += chunk;
  });
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code, signal) => resolve({ code, signal, ...text }));
  });
}

/** Control groups need root here; without them there is nothing to try. */
export function needControlGroups(context: TestContext, limits: Limits): void {
  const { memory, cpu, pids, missing } = limits.description;
  if ([memory, cpu, pids].some(({ by }) => !by.startsWith("cgroup"))) context.skip(`no control groups: ${missing}`);
}
