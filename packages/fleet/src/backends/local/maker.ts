/**
 * Making a sandbox.
 *
 *   intent and pipes on disk ─▶ workspace ─▶ limits ─▶ socket ─▶ processes ─▶ ready
 *
 * The intent comes first, so that whatever was made is found from it; whoever fails on the way unmakes it all, here.
 */

import { closeSync } from "node:fs";
import { availableParallelism } from "node:os";
import { type DaemonConfig, SandlotError, WORKSPACE_ROOT } from "@sandlot/contract";
import type { Created, CreateSpec } from "../../backend/backend.ts";
import { threadKeyOf } from "../../backend/labels.ts";
import type { DiskWorkspaces } from "../../workspace/disk/disk-workspaces.ts";
import { placeOf } from "../../workspace/disk/layout.ts";
import type { World } from "../../world/world.ts";
import type { Egresses } from "./egress.ts";
import type { Engine, Prepared } from "./engine/engine.ts";
import { makeListeningSocket } from "./engine/listening-socket.ts";
import { openPulse } from "./engine/pulse.ts";
import { FD, start } from "./engine/start.ts";
import { explainStart } from "./engine/start-problem.ts";
import type { Limits, ProjectQuotas } from "./limits/index.ts";
import { findMisplaced } from "./mount-points.ts";
import { type Binding, checkMounts, misplaced, mountPointsOf } from "./mounts.ts";
import { formatRef } from "./objects/engine-ref.ts";
import {
  type Layout,
  type ObjectName,
  pulsePath,
  socketPath,
  statusPath,
  unfinishedSocketPath,
} from "./objects/layout.ts";
import type { ObjectRecord, ObjectStore, ProcessRecord } from "./objects/object-store.ts";
import type { Remover } from "./remover.ts";
import type { LocalSettings } from "./settings.ts";
import { Turns } from "./turns.ts";

export interface MakerParts {
  readonly world: World;
  readonly settings: LocalSettings;
  readonly layout: Layout;
  readonly objects: ObjectStore;
  readonly workspaces: DiskWorkspaces;
  readonly limits: Limits;
  readonly quotas: ProjectQuotas;
  readonly egresses: Egresses;
  readonly remover: Remover;
  readonly engine: Engine;
  readonly machineId: string;
  readonly strays: readonly number[];
}

/** Two for each processor: one may wait for the disk. */
const STARTS_MAX = 2 * availableParallelism();

export class Maker {
  readonly #parts: MakerParts;
  readonly #turns = new Turns(STARTS_MAX);

  constructor(parts: MakerParts) {
    this.#parts = parts;
  }

  async make(spec: CreateSpec, signal: AbortSignal): Promise<Created> {
    const { engine, egresses } = this.#parts;
    await engine.ready();
    await egresses.check(spec.blueprint.network);
    return this.#turns.run(signal, () => this.#makeNow(spec, signal));
  }

  async #makeNow(spec: CreateSpec, signal: AbortSignal): Promise<Created> {
    const { objects, remover, world, settings, layout } = this.#parts;
    const { sandboxId, generation } = spec.labels;
    const name: ObjectName = `${sandboxId}-${generation}`;
    const mounts = checkMounts(spec.blueprint.mounts, settings.skillsPath, layout.root, settings.blueprints);
    const record = this.#recordOf(spec, mounts);
    signal.throwIfAborted();
    await objects.intend(name, record);
    const late = new SandlotError("create_failed", { backend: "local", problem: "it was not ready in time" });
    const deadline = new AbortController();
    const timer = world.timer(settings.readyTimeoutMs, () => deadline.abort(late));
    try {
      return await this.#make(name, spec, mounts, AbortSignal.any([signal, deadline.signal]));
    } catch (error) {
      await remover.unmake(name, record);
      throw explainStart(error);
    } finally {
      timer.cancel();
    }
  }

  async #make(name: ObjectName, spec: CreateSpec, mounts: readonly Binding[], signal: AbortSignal): Promise<Created> {
    const { world, limits, egresses } = this.#parts;
    const { binding, workspace } = await this.#workspaceFor(spec, mounts);
    signal.throwIfAborted();
    const { diskBytes: fileMaxBytes, ...wish } = spec.blueprint.limits;
    const group = limits.create(name, { ...wish, fileMaxBytes });
    const egress = await egresses.start(name, spec.labels, spec.blueprint.network);
    const shared = (egress?.network.mounts ?? []).map(({ hostPath: from, sandboxPath: to }) => ({
      from,
      to,
      readOnly: true,
    }));
    const process = await this.#start({ name, spec, group, egress, bindings: [binding, ...mounts, ...shared] }, signal);
    this.#checkPlaces([binding, ...mounts], process);
    egresses.watch(name, process);
    const { bootId } = world.identity;
    return { ref: formatRef(name, { bootId, process: process.init }), place: placeOf(spec), workspace };
  }

  /** Before anybody can use it. Without namespaces nothing is mounted. */
  #checkPlaces(bindings: readonly Binding[], { init }: ProcessRecord): void {
    if (this.#parts.settings.local.isolation !== "bubblewrap") return;
    const wrong = findMisplaced(bindings, init.pid);
    if (wrong !== undefined) throw misplaced(wrong);
  }

  async #start(prepared: Prepared, signal: AbortSignal): Promise<ProcessRecord> {
    const { world, layout, objects, engine, strays } = this.#parts;
    const { name, spec } = prepared;
    const socket = await makeListeningSocket(unfinishedSocketPath(layout, name));
    const opened: number[] = [];
    try {
      const pulse = openPulse(pulsePath(layout, name));
      opened.push(pulse);
      const plan = engine.plan(prepared);
      opened.push(...plan.files);
      socket.publish(socketPath(layout, name));
      const listen = socket.fd;
      const started = (process: ProcessRecord) => objects.started(name, process);
      const config = { ...this.#configOf(spec), ...plan.config };
      return await start(
        { plan, config, listen, pulse, statusPath: statusPath(layout, name), strays, started, world },
        signal,
      );
    } finally {
      for (const fd of opened) closeSync(fd);
      await socket.close();
    }
  }

  async #workspaceFor(spec: CreateSpec, mounts: readonly Binding[]) {
    const { workspaces, quotas } = this.#parts;
    const { sandboxId, generation } = spec.labels;
    if (spec.marker === null) {
      const { mntPath } = await workspaces.prepareSlot(sandboxId, generation, { mountPoints: mountPointsOf(mounts) });
      return { binding: { from: mntPath, to: "/mnt", readOnly: false }, workspace: "none" } as const;
    }
    const { userDataPath, existing } = await workspaces.prepareHome(spec.marker);
    await quotas.hold(threadKeyOf(spec.marker.user, spec.marker.thread), userDataPath, spec.blueprint.limits);
    const binding = { from: userDataPath, to: WORKSPACE_ROOT, readOnly: false };
    return { binding, workspace: existing ? "existing" : "new" } as const;
  }

  #configOf({ labels, token }: CreateSpec): DaemonConfig {
    return {
      sandboxId: labels.sandboxId,
      generation: labels.generation,
      token,
      listen: { fd: FD.listen },
      ready: { fd: FD.ready },
      orphanTimeoutMs: this.#parts.settings.orphanTimeoutMs,
    };
  }

  #recordOf(spec: CreateSpec, mounts: readonly Binding[]): ObjectRecord {
    const { machineId, world } = this.#parts;
    const { labels, generation, token } = spec;
    const { diskBytes, filesMax, memoryBytes, pidsMax } = spec.blueprint.limits;
    const credentials = { generation, token };
    const limits = { diskBytes, filesMax, memoryBytes, pidsMax };
    const { isolation } = this.#parts.settings.local;
    return { labels, place: placeOf(spec), credentials, limits, isolation, mounts, machineId, maker: world.identity };
  }
}
