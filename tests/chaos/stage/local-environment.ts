/**
 * An environment on this machine itself: sandboxes of the local backend. The bystander is a process.
 *
 * Leftovers are searched among all processes, mounts, control groups and files. The fleets to be killed are children of
 * this process, so only processes that outlived one of them count, and everything in a control group of the fleet.
 */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { egressPath, makeLayout, socketPath } from "../../../packages/fleet/src/host/layout.ts";
import { comesFromUs, isKept, look } from "../../soak/host-sight.ts";
import { Environment, type SandboxName, shapeOf } from "./environment.ts";
import { KILL_STAGES, type Tally } from "./tally.ts";
import type { StartWatch } from "./target.ts";

/** Nothing reports the start of a sandbox here: it is ready a moment later. */
const UNSEEN: StartWatch = { listener: () => {}, strays: () => Promise.resolve([]), close: () => {} };

export class LocalEnvironment extends Environment {
  readonly stages = KILL_STAGES.filter((stage) => stage !== "ready");
  #bystander: ChildProcess | null = null;

  constructor(tally: Tally) {
    super(mkdtempSync("/tmp/sl-chaos-"), tally, shapeOf({ backend: "local" }));
    mkdirSync(this.home, { mode: 0o700 });
    process.on("exit", () => this.#endNow());
  }

  /** Why it is unsupported here. */
  static problem(): string | null {
    if (spawnSync("bwrap", ["--version"]).status !== 0) return "bubblewrap is not installed";
    return process.getuid?.() === 0 ? null : "blanks are bound by root's fleets only";
  }

  watchStarts(): Promise<StartWatch> {
    return Promise.resolve(UNSEEN);
  }

  /** The first process of a thread's sandbox, and its parent outside. */
  async processesIn(thread: string): Promise<{ readonly init: number; readonly outer: number }> {
    const found = await this.fleet.find({ thread });
    const objects = join(this.home, this.fleetId, "objects");
    const object = readdirSync(objects).find((name) => name.startsWith(`${found?.sandboxId}-`));
    const { init } = JSON.parse(readFileSync(join(objects, `${object}`, "process.json"), "utf8"));
    const status = readFileSync(`/proc/${init.pid}/status`, "utf8");
    return { init: init.pid, outer: Number(/^PPid:\s+(\d+)/m.exec(status)?.[1]) };
  }

  protected async leftovers(meant: readonly SandboxName[]): Promise<readonly string[]> {
    const sight = look(this.home, "local");
    const layout = makeLayout(this.home, this.fleetId, "/tmp");
    const names = meant.map(({ sandboxId, generation }) => `${sandboxId}-${generation}`);
    const sockets = names.map((name) => socketPath(layout, name));
    const networks = names.map((name) => egressPath(layout, name));
    const isMeant = (text: string) =>
      meant.some(({ sandboxId }) => text.includes(sandboxId)) || sockets.includes(join(this.home, text));
    const roots = new RegExp(`/sandlot/${this.fleetId}/cgroup\\.procs$`);
    const carriers = existsSync(layout.egress)
      ? readdirSync(layout.egress).map((name) => join(layout.egress, name))
      : [];
    return [
      ...[...sight.processes].filter((line) => this.#isLeft(line.split(" ", 1)[0] ?? "", isMeant)),
      ...sight.mounts,
      ...[...sight.groups].filter((group) => !roots.test(group) && !isMeant(group)),
      ...[...sight.files].filter((file) => !isKept(file) && !isMeant(file)),
      ...carriers.filter((path) => layout.egress !== layout.sockets && !networks.includes(path)),
    ].toSorted();
  }

  #isLeft(pid: string, isMeant: (text: string) => boolean): boolean {
    try {
      const groups = readFileSync(`/proc/${pid}/cgroup`, "latin1");
      if (groups.includes(`/sandlot/${this.fleetId}/`)) return !isMeant(groups);
      return !comesFromUs(pid);
    } catch {
      return false; // It has ended meanwhile.
    }
  }

  protected async openBystander(): Promise<void> {
    this.#bystander = spawn("sleep", ["100000"], { env: { SANDLOT_FLEET: `${this.fleetId}x` }, stdio: "ignore" });
  }

  protected async bystanderSince(): Promise<string> {
    const { pid, exitCode, signalCode } = this.#bystander ?? {};
    return exitCode === null && signalCode === null ? String(pid) : "";
  }

  protected async closeBystander(): Promise<void> {
    this.#bystander?.kill();
    const left = await this.leftovers([]);
    if (left.length > 0) this.tally.violated(`left when everything was closed: ${left.join(", ")}`);
  }

  #endNow(): void {
    this.#bystander?.kill("SIGKILL");
    rmSync(this.place, { recursive: true, force: true });
  }
}
