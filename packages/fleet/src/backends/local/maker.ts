/**
 * Makes a sandbox.
 *
 *   intent and pipes on disk ─▶ workspace ─▶ limits ─▶ socket ─▶ processes ─▶ ready
 *
 * The intent comes first, so that a later process finds every part from it. A failed step undoes all steps here.
 */

import { closeSync } from "node:fs";
import { availableParallelism } from "node:os";
import { type DaemonConfig, SandlotError, WORKSPACE_ROOT } from "@sandlot/contract";
import type { Created, CreateSpec } from "../../backend/backend.ts";
import { threadKeyOf } from "../../backend/labels.ts";
import type { Account, IdMapping, SandboxAccounts } from "../../host/accounts/index.ts";
import {
  type Layout,
  type ObjectName,
  objectDirectory,
  pulsePath,
  socketPath,
  statusPath,
  unfinishedSocketPath,
} from "../../host/layout.ts";
import type { Limits, ProjectQuotas } from "../../host/limits/index.ts";
import { findMisplaced } from "../../host/mounts/mount-points.ts";
import { type Binding, checkMounts, misplaced, mountPointsOf } from "../../host/mounts/mounts.ts";
import { ownedMounts } from "../../host/mounts/owned-mounts.ts";
import type { DiskWorkspaces } from "../../host/workspaces/disk-workspaces.ts";
import { placeOf } from "../../host/workspaces/layout.ts";
import { ConcurrencyLimit } from "../../world/concurrency-limit.ts";
import type { World } from "../../world/world.ts";
import type { Egresses } from "./egress.ts";
import type { Engine, Prepared } from "./engine/engine.ts";
import { makeListeningSocket } from "./engine/listening-socket.ts";
import { openPulse } from "./engine/pulse.ts";
import { FD, start } from "./engine/start.ts";
import { explainStart } from "./engine/start-problem.ts";
import { formatRef } from "./objects/engine-ref.ts";
import type { ObjectRecord, ObjectStore, ProcessRecord } from "./objects/object-store.ts";
import type { Remover } from "./remover.ts";
import { FILTER_ARCHITECTURES } from "./seccomp/index.ts";
import type { LocalSettings } from "./settings.ts";

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
  /** Separate accounts for sandboxes; `null` where all have the fleet's one. */
  readonly accounts: SandboxAccounts | null;
  readonly mapping: IdMapping;
  /** Gets the reason when a configured mount differs from its configuration. */
  readonly onMountProblem: (problem: string) => void;
}

/** Two for each processor: one may wait for the disk. */
const STARTS_MAX = 2 * availableParallelism();

export class Maker {
  readonly #parts: MakerParts;
  readonly #turns = new ConcurrencyLimit(STARTS_MAX);

  constructor(parts: MakerParts) {
    this.#parts = parts;
  }

  async make(spec: CreateSpec, signal: AbortSignal): Promise<Created> {
    const { engine, egresses, accounts, mapping } = this.#parts;
    if (accounts !== null) mapping.prepare();
    await engine.ready();
    await egresses.check(spec.blueprint.network);
    return this.#turns.run(signal, () => this.#makeNow(spec, signal));
  }

  async #makeNow(spec: CreateSpec, signal: AbortSignal): Promise<Created> {
    const { objects, remover, world, settings, layout, accounts } = this.#parts;
    const { sandboxId, generation } = spec.labels;
    const name: ObjectName = `${sandboxId}-${generation}`;
    const checked = checkMounts(spec.blueprint.mounts, settings.skillsPath, layout.root, settings.blueprints);
    const mounts = await this.#owned(checked);
    signal.throwIfAborted();
    const account = accounts?.claim({ name, path: objectDirectory(layout, name) }) ?? null;
    const record = this.#recordOf(spec, mounts, account);
    await objects.intend(name, record).catch((error: unknown) => {
      if (account !== null) accounts?.release(name, account);
      throw error;
    });
    const late = new SandlotError("create_failed", { backend: "local", problem: "it was not ready in time" });
    const deadline = new AbortController();
    const timer = world.timer(settings.readyTimeoutMs, () => deadline.abort(late));
    try {
      return await this.#make(name, spec, record, AbortSignal.any([signal, deadline.signal]));
    } catch (error) {
      await remover.unmake(name, record);
      throw explainStart(error);
    } finally {
      timer.cancel();
    }
  }

  /** The mounts of a sandbox with its own account. */
  async #owned(mounts: readonly Binding[]): Promise<readonly Binding[]> {
    const { accounts, mapping, onMountProblem } = this.#parts;
    if (accounts === null) return mounts;
    const owned = await ownedMounts(mounts, mapping, { refusesSetId: FILTER_ARCHITECTURES.includes(process.arch) });
    for (const problem of owned.problems) onMountProblem(problem);
    return owned.mounts;
  }

  async #make(name: ObjectName, spec: CreateSpec, record: ObjectRecord, signal: AbortSignal): Promise<Created> {
    const { world, limits, egresses, settings } = this.#parts;
    const { mounts } = record;
    const account = record.account ?? settings.account;
    const { binding, workspace } = await this.#workspaceFor(spec, record);
    signal.throwIfAborted();
    const { diskBytes: fileMaxBytes, ...requested } = spec.blueprint.limits;
    const group = limits.create(name, { ...requested, fileMaxBytes });
    const egress = await egresses.start(name, record, spec.blueprint.network);
    const shared = (egress?.network.mounts ?? []).map(({ hostPath: from, sandboxPath: to }) => ({
      from,
      to,
      readOnly: true,
    }));
    const bindings = [binding, ...mounts, ...shared];
    const process = await this.#start({ name, spec, group, egress, account, bindings }, signal);
    this.#checkPlaces([binding, ...mounts], process);
    egresses.watch(name, process);
    const { bootId } = world.identity;
    return { ref: formatRef(name, { bootId, process: process.init }), place: placeOf(spec), workspace };
  }

  /** Runs before any caller can use the sandbox. Without namespaces nothing is mounted. */
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
      const plan = await engine.plan(prepared, signal);
      opened.push(...plan.files, ...plan.held);
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

  async #workspaceFor(spec: CreateSpec, { mounts, account }: ObjectRecord) {
    const { workspaces, quotas, settings, mapping, layout } = this.#parts;
    const { sandboxId, generation } = spec.labels;
    const isMapped = account !== null && (await mapping.problem(layout.root, "top")) === null;
    // Where owners cannot be mapped, the account becomes the owner of the files.
    const given = account === null || isMapped ? {} : { owner: account };
    const shown = isMapped && settings.account !== null ? { owner: settings.account } : {};
    if (spec.marker === null) {
      const mountPoints = mountPointsOf(mounts);
      const { mntPath } = await workspaces.prepareSlot(sandboxId, generation, { mountPoints, ...given });
      return { binding: { from: mntPath, to: "/mnt", readOnly: false, ...shown }, workspace: "none" } as const;
    }
    const { userDataPath, existing } = await workspaces.prepareHome(spec.marker, given);
    await quotas.hold(threadKeyOf(spec.marker.user, spec.marker.thread), userDataPath, spec.blueprint.limits);
    const binding = { from: userDataPath, to: WORKSPACE_ROOT, readOnly: false, ...shown };
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

  #recordOf(spec: CreateSpec, mounts: readonly Binding[], account: Account | null): ObjectRecord {
    const { machineId, world } = this.#parts;
    const { labels, generation, token } = spec;
    const { diskBytes, filesMax, memoryBytes, pidsMax } = spec.blueprint.limits;
    const credentials = { generation, token };
    const limits = { diskBytes, filesMax, memoryBytes, pidsMax };
    const { isolation } = this.#parts.settings.local;
    const { identity: maker } = world;
    return { labels, place: placeOf(spec), credentials, limits, isolation, mounts, account, machineId, maker };
  }
}
