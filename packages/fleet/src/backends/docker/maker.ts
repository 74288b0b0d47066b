/**
 * Making a sandbox.
 *
 *   image ─▶ intent on disk ─▶ workspace, socket directory ─▶ container made, written down ─▶ started ─▶ ready
 *
 * The intent comes first, so that a later process finds every part from it. A failed step undoes all steps here.
 */

import { join } from "node:path";
import { type DaemonConfig, DEFAULT_CWD, WORKSPACE_ROOT } from "@sandlot/contract";
import type { Created, CreateSpec } from "../../backend/backend.ts";
import { type Blueprint, homePathOf } from "../../backend/blueprint.ts";
import type { Account } from "../../host/accounts/index.ts";
import { modeVariables } from "../../host/egress/sandbox-side/mode-variables.ts";
import { type Layout, type ObjectName, socketPath } from "../../host/layout.ts";
import { type Binding, checkMounts, misplaced, mountPointsOf } from "../../host/mounts/mounts.ts";
import { RuntimeKeeper, runtimeBindings } from "../../host/runtime/runtime-directory.ts";
import type { DiskWorkspaces } from "../../host/workspaces/disk-workspaces.ts";
import { placeOf } from "../../host/workspaces/layout.ts";
import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import { AIO_PORT, aioOptions, startsAsItself } from "./aio/options.ts";
import type { AioRuntime } from "./aio/runtime.ts";
import { ANNOUNCE_FD } from "./container/announcement.ts";
import { commandEnvironment, installEnvironment } from "./container/command-environment.ts";
import { makeAccounts, makeFrame } from "./container/frame.ts";
import { outsidePath } from "./container/host-paths.ts";
import { type Images, imageEnvironment } from "./container/images.ts";
import { INSIDE } from "./container/inside.ts";
import { checkFilter, checkRuntime } from "./container/isolation.ts";
import { findMisplacedIn, type SeenMount, seenMounts } from "./container/mount-check.ts";
import { containerOptions } from "./container/options.ts";
import { checkNetwork, publishedPort, reachPort } from "./container/published-port.ts";
import { becomesReady, unlessItEnds } from "./container/readiness.ts";
import {
  clearStart,
  isRelayed,
  makeSocketDirectory,
  publishSocket,
  socketDirectory,
} from "./container/socket-directory.ts";
import { explainCreate } from "./container/start-problem.ts";
import {
  chooseTransport,
  DAEMON_PORT,
  mayHideSockets,
  runtimeOf,
  socketsHidden,
  type Transport,
} from "./container/transport.ts";
import { type ContainerAccounts, MountsUnseen } from "./container-accounts.ts";
import { type Egresses, type PreparedEgress, supportsEgress } from "./egress.ts";
import type { Engine } from "./engine/engine.ts";
import { createFailed } from "./engine/trouble.ts";
import { type Claimed, claimName, findRunning } from "./name-conflict.ts";
import type { ContainerObjects, ObjectRecord } from "./objects/container-objects.ts";
import { containerLabels, containerName, formatRef } from "./objects/labels.ts";
import type { Remover } from "./remover.ts";
import type { DockerSettings } from "./settings.ts";

export interface MakerParts {
  readonly world: World;
  readonly settings: DockerSettings;
  readonly engine: Engine;
  readonly images: Images;
  readonly layout: Layout;
  readonly objects: ContainerObjects;
  readonly workspaces: DiskWorkspaces;
  readonly remover: Remover;
  readonly egresses: Egresses;
  readonly accounts: ContainerAccounts;
  /** `null` where sandboxes have the daemon inside. */
  readonly aio: AioRuntime | null;
  /** Gets the reason when an unused runtime directory could not be removed. */
  readonly onRuntimeProblem: (error: unknown) => void;
}

/** A relayed socket appears a moment after the daemon has made its own. */
const RELAY_LOOK_MS = 20;
/** For a container that has a network of the engine. */
const NO_WAY_OUT: Blueprint["network"] = { mode: "none", allow: [] };

export class Maker {
  readonly #parts: MakerParts;
  readonly #runtime: RuntimeKeeper;

  constructor(parts: MakerParts) {
    this.#parts = parts;
    const { settings, layout, world, onRuntimeProblem: onProblem } = parts;
    const { nodePath, daemon, runtimeDirectory } = settings;
    const parent = runtimeDirectory ?? join(layout.root, "frames");
    const objects = runtimeDirectory === null ? [layout.objects, join(layout.root, "objects")] : null;
    const seesNode = outsidePath(nodePath, settings.docker.hostPaths) !== null;
    this.#runtime = new RuntimeKeeper({ parent, nodePath, daemon, seesNode, objects, world, onProblem });
  }

  async make(spec: CreateSpec, signal: AbortSignal): Promise<Created> {
    const made: MadeSoFar = { containerId: null, workspace: null };
    try {
      return await this.#makeOnce(spec, made, signal);
    } catch (error) {
      // The first container shows that the engine does not see our mounts: from now on owners are not mapped.
      if (!(error instanceof MountsUnseen)) throw error;
      const again = await this.#makeOnce(spec, { containerId: null, workspace: null }, signal);
      return { ...again, workspace: made.workspace ?? again.workspace };
    }
  }

  async #makeOnce(spec: CreateSpec, made: MadeSoFar, signal: AbortSignal): Promise<Created> {
    const { settings, layout, images, objects, remover, world, engine, aio, accounts } = this.#parts;
    const { docker } = settings;
    const runtime = runtimeOf(spec.blueprint, docker);
    await checkRuntime(engine, runtime);
    checkFilter(engine.facts, runtime);
    const wayOut = supportsEgress(engine.facts, { ...docker, runtime });
    const transport = chooseTransport(docker, engine.facts, wayOut, spec.blueprint.network);
    const name: ObjectName = `${spec.labels.sandboxId}-${spec.labels.generation}`;
    const checked = checkMounts(spec.blueprint.mounts, settings.skillsPath, layout.root, settings.blueprints);
    const seen = seenMounts(checked);
    await this.#checkNetwork(transport, spec);
    const imageName = spec.blueprint.image ?? settings.docker.image;
    const image = imageEnvironment(await images.ready(imageName, signal));
    const running = aio === null ? await this.#running(name, spec, signal) : null;
    if (running !== null) return running;
    // Removes unused ones now: a recorded sandbox without its link yet would keep them all.
    if (aio === null) await this.#runtime.get();
    signal.throwIfAborted();
    const account = accounts.claim(name, objects.path(name));
    const record = this.#recordOf(spec, transport, account);
    await objects.intend(name, record).catch((error: unknown) => {
      accounts.release(name, account);
      throw error;
    });
    const deadline = new AbortController();
    const timer = world.timer(settings.readyTimeoutMs, () => deadline.abort(createFailed("it was not ready in time")));
    try {
      const bounded = AbortSignal.any([signal, deadline.signal]);
      const mounts = await accounts.owned(checked, account, runtime);
      return await this.#make({ name, spec, record, mounts, seen, imageName, image, made }, bounded);
    } catch (error) {
      await remover.unmake(name, record, made.containerId);
      throw explainCreate(error, imageName, checked);
    } finally {
      timer.cancel();
    }
  }

  /** The container of an earlier call whose response was lost. */
  async #running(name: ObjectName, spec: CreateSpec, signal: AbortSignal): Promise<Created | null> {
    const { publishHost } = this.#parts.settings.docker;
    const ref = await findRunning({ ...this.#parts, publishHost }, name, spec, signal);
    return ref === null ? null : { ref, place: placeOf(spec), workspace: spec.marker === null ? "none" : "existing" };
  }

  async #make(plan: Plan, signal: AbortSignal): Promise<Created> {
    const { name, spec, made } = plan;
    const { layout, engine, objects } = this.#parts;
    const { bindings, workspace } = await this.#workspaceFor(plan);
    made.workspace = workspace;
    const wayOut = plan.record.transport === "port" ? NO_WAY_OUT : spec.blueprint.network;
    const egress = await this.#parts.egresses.prepare(name, plan.record, wayOut);
    if (this.#parts.aio !== null) {
      const containerId = await this.#makeAio(this.#parts.aio, plan, bindings, egress, signal);
      return { ref: formatRef({ containerId, name }), place: placeOf(spec), workspace };
    }
    const config = this.#configOf(plan, egress);
    const account = this.#parts.settings.ownsAccount ? null : this.#accountOf(plan.record);
    const listener = await makeSocketDirectory(layout, name, config, account);
    try {
      signal.throwIfAborted();
      const { containerId } = await this.#container(plan, [...bindings, ...egress.bindings]);
      made.containerId = containerId;
      await objects.made(name, plan.record, { containerId, engineId: engine.facts.id, hostPort: null });
      signal.throwIfAborted();
      await engine.start(containerId);
      await this.#settle(plan, bindings, containerId);
      await becomesReady(this.#parts, containerId, config, listener, signal);
      if (plan.record.transport === "port") await this.#publishPort(plan, containerId, signal);
      else await this.#publishSocket(name, spec.blueprint, signal);
      clearStart(layout, name);
      await this.#checkPlaces(plan, [...bindings, ...egress.bindings], containerId);
      await this.#parts.egresses.start(name, plan.record, wayOut, containerId);
      return { ref: formatRef({ containerId, name }), place: placeOf(spec), workspace };
    } finally {
      listener?.close();
    }
  }

  /** Unmounts the mounts for the engine: the container has its own now. */
  async #settle({ name, mounts }: Plan, bindings: readonly Binding[], containerId: string): Promise<void> {
    const { engine, accounts } = this.#parts;
    const all = [...bindings, ...mounts];
    if (all.every(({ owner }) => owner === undefined)) return;
    const pid = (await engine.inspect(containerId))?.State.Pid ?? 0;
    // A container that has ended reports why where its readiness is awaited.
    if (pid !== 0) accounts.settle(name, all, pid);
  }

  #accountOf({ account }: ObjectRecord): Account {
    return account ?? this.#parts.settings.account;
  }

  /** Runs before any caller can use the container, where its mounts are visible. */
  async #checkPlaces({ seen, spec }: Plan, around: readonly Binding[], containerId: string): Promise<void> {
    const { engine, settings } = this.#parts;
    const runtime = runtimeOf(spec.blueprint, settings.docker);
    if (seen.length === 0 || !supportsEgress(engine.facts, { ...settings.docker, runtime })) return;
    const pid = (await engine.inspect(containerId))?.State.Pid ?? 0;
    if (pid === 0) throw createFailed("it ended before its mounts were seen");
    const wrong = findMisplacedIn(seen, around, pid);
    if (wrong !== undefined) throw misplaced(wrong);
  }

  /** The image's own server replaces the daemon. It announces nothing, so this polls until it responds. */
  async #makeAio(
    aio: AioRuntime,
    plan: Plan,
    bindings: readonly Binding[],
    egress: PreparedEgress,
    signal: AbortSignal,
  ): Promise<string> {
    const { name, spec, record, imageName, mounts, made } = plan;
    const { engine, objects, settings, egresses, accounts } = this.#parts;
    const { environment } = egress;
    const home = homePathOf(spec.blueprint);
    const forCommands = { ...installEnvironment(home, plan.image), ...environment, ...spec.blueprint.environment };
    const { apiKey } = await aio.records.make(name, forCommands);
    signal.throwIfAborted();
    const account = this.#accountOf(record);
    const own = startsAsItself(settings.docker) ? [] : this.#accounts(account, home);
    const shown = await accounts.show(name, [...bindings, ...mounts], record.account);
    const base = containerOptions({
      ...{ name: containerName(name), labels: containerLabels(spec.labels, placeOf(spec)), image: imageName },
      // The server needs a home from its start on; a blank gets the kept one later.
      ...{ imageNames: [], blueprint: spec.blueprint, hasTemporaryHome: true, transport: record.transport },
      ...{ bringsNode: false, says: false, relay: null },
      bindings: [...shown, ...egress.bindings, ...own],
      ...{ settings: { ...settings, account }, facts: engine.facts },
    });
    const options = aioOptions(base, { apiKey, workspace: DEFAULT_CWD, environment });
    const { containerId } = await claimName(engine, options, spec.labels);
    made.containerId = containerId;
    const engineId = engine.facts.id;
    await objects.made(name, record, { containerId, engineId, hostPort: null });
    signal.throwIfAborted();
    await engine.start(containerId);
    await this.#settle(plan, bindings, containerId);
    if (record.transport === "socket") await egresses.start(name, record, spec.blueprint.network, containerId);
    else {
      const hostPort = await publishedPort(engine, containerId, AIO_PORT);
      await objects.made(name, record, { containerId, engineId, hostPort });
    }
    await unlessItEnds(this.#parts, containerId, signal, (either) => aio.ready(name, imageName, either));
    return containerId;
  }

  async #publishSocket(name: ObjectName, blueprint: Blueprint, signal: AbortSignal): Promise<void> {
    const { settings, engine, layout, world } = this.#parts;
    if (engine.facts.relaysSockets) {
      while (!isRelayed(layout, name)) await sleep(world, RELAY_LOOK_MS, signal);
      return;
    }
    if (publishSocket(layout, name)) return;
    const runtime = runtimeOf(blueprint, settings.docker) ?? engine.facts.defaultRuntime;
    if (mayHideSockets(runtime, engine.facts)) throw socketsHidden(runtime);
    throw createFailed("its daemon's socket is not there");
  }

  async #publishPort({ name, spec, record }: Plan, containerId: string, signal: AbortSignal): Promise<void> {
    const { engine, objects, settings, world } = this.#parts;
    const hostPort = await publishedPort(engine, containerId);
    if (hostPort === null) throw createFailed("the engine has published no port for it");
    await objects.made(name, record, { containerId, engineId: engine.facts.id, hostPort });
    const { generation, token, labels } = spec;
    const address = { host: settings.docker.publishHost, port: hostPort };
    await reachPort({ address, sandboxId: labels.sandboxId, generation, token }, world, signal);
  }

  async #checkNetwork(transport: Transport, { blueprint }: CreateSpec): Promise<void> {
    const { egresses, engine, settings } = this.#parts;
    if (transport === "socket") return egresses.check(blueprint.network);
    if (settings.docker.network !== null) await checkNetwork(engine, settings.docker.network);
  }

  async #container(
    { name, spec, record, imageName, image, mounts }: Plan,
    bindings: readonly Binding[],
  ): Promise<Claimed> {
    const { settings, engine, layout, accounts, objects } = this.#parts;
    const account = this.#accountOf(record);
    const runtime = await this.#runtime.get();
    this.#runtime.use(runtime, objects.path(name));
    const options = containerOptions({
      name: containerName(name),
      labels: containerLabels(spec.labels, placeOf(spec)),
      image: imageName,
      imageNames: Object.keys(image),
      blueprint: spec.blueprint,
      hasTemporaryHome: spec.blueprint.home === "temporary",
      bindings: [
        ...(await accounts.show(name, [...bindings, ...mounts], record.account)),
        ...this.#accounts(account, homePathOf(spec.blueprint)),
        ...runtimeBindings(runtime, INSIDE.runtime),
        { from: socketDirectory(layout, name), to: INSIDE.socketDirectory, readOnly: false },
      ],
      bringsNode: runtime.bringsNode,
      transport: record.transport,
      relay: engine.facts.relaysSockets ? { inside: INSIDE.relayed, outside: socketPath(layout, name) } : null,
      says: this.#saysReady(record.transport, spec.blueprint),
      settings: { ...settings, account },
      facts: engine.facts,
    });
    return claimName(engine, options, spec.labels);
  }

  #accounts(account: Account, home: string): readonly Binding[] {
    const { engine, layout } = this.#parts;
    return makeAccounts(join(layout.root, "frames"), engine.facts.isRootless ? { uid: 0, gid: 0 } : account, home);
  }

  async #workspaceFor({ spec, mounts, record }: Plan) {
    const { workspaces, layout, accounts, settings } = this.#parts;
    const { sandboxId, generation } = spec.labels;
    const { given, shown } = await accounts.ownerOf(record.account, runtimeOf(spec.blueprint, settings.docker));
    const mountPoints = mountPointsOf(mounts);
    if (spec.marker === null) {
      const { mntPath } = await workspaces.prepareSlot(sandboxId, generation, { mountPoints, ...given });
      return { bindings: [{ from: mntPath, to: "/mnt", readOnly: false, ...shown }], workspace: "none" } as const;
    }
    const { userDataPath, existing } = await workspaces.prepareHome(spec.marker, given);
    const bindings = [
      { from: makeFrame(join(layout.root, "frames"), mountPoints), to: "/mnt", readOnly: true },
      { from: userDataPath, to: WORKSPACE_ROOT, readOnly: false, ...shown },
    ];
    return { bindings, workspace: existing ? "existing" : "new" } as const;
  }

  /** Whether the container announces readiness in its output: where its sockets may not be visible. */
  #saysReady(transport: Transport, blueprint: Blueprint): boolean {
    const { settings, engine } = this.#parts;
    return transport === "port" || mayHideSockets(runtimeOf(blueprint, settings.docker), engine.facts);
  }

  #configOf({ spec: { labels, token, blueprint }, image, record }: Plan, egress: PreparedEgress): DaemonConfig {
    const { transport } = record;
    return {
      sandboxId: labels.sandboxId,
      generation: labels.generation,
      token,
      listen: transport === "port" ? { host: "0.0.0.0", port: DAEMON_PORT } : { path: this.#socketInside() },
      ready: this.#saysReady(transport, blueprint) ? { fd: ANNOUNCE_FD } : { path: INSIDE.ready },
      orphanTimeoutMs: this.#parts.settings.orphanTimeoutMs,
      environment: {
        ...commandEnvironment(homePathOf(blueprint), image),
        ...modeVariables(blueprint.network.mode),
        ...egress.environment,
        ...blueprint.environment,
      },
      defaultCwd: DEFAULT_CWD,
      ownsPidNamespace: true,
    };
  }

  #socketInside(): string {
    return this.#parts.engine.facts.relaysSockets ? INSIDE.relayed : INSIDE.socket;
  }

  #recordOf(spec: CreateSpec, transport: Transport, account: Account | null): ObjectRecord {
    const { labels, generation, token, blueprint } = spec;
    const { diskBytes, filesMax, memoryBytes, pidsMax } = blueprint.limits;
    const limits = { diskBytes, filesMax, memoryBytes, pidsMax };
    const maker = this.#parts.world.identity;
    return { labels, place: placeOf(spec), credentials: { generation, token }, transport, account, limits, maker };
  }
}

interface Plan {
  readonly name: ObjectName;
  readonly spec: CreateSpec;
  readonly record: ObjectRecord;
  readonly mounts: readonly Binding[];
  /** The mounts, with their identities when they were checked. */
  readonly seen: readonly SeenMount[];
  readonly imageName: string;
  /** What the image sets in its environment. */
  readonly image: Readonly<Record<string, string>>;
  readonly made: MadeSoFar;
}

/** The progress of a create: what to undo, and the workspace's state before. */
interface MadeSoFar {
  containerId: string | null;
  workspace: Created["workspace"] | null;
}
