/**
 * Making a sandbox.
 *
 *   image ─▶ intent on disk ─▶ workspace, socket directory ─▶ container made, written down ─▶ started ─▶ ready
 *
 * The intent comes first, so that whatever was made is found from it; whoever fails on the way unmakes it all, here.
 */

import { statSync } from "node:fs";
import { join } from "node:path";
import { type DaemonConfig, DEFAULT_CWD, WORKSPACE_ROOT } from "@sandlot/contract";
import type { Created, CreateSpec, Place } from "../../backend/backend.ts";
import type { DiskWorkspaces } from "../../workspace/disk/disk-workspaces.ts";
import type { MountPoint } from "../../workspace/disk/slots.ts";
import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import { BASE_ENVIRONMENT } from "../local/bubblewrap/arguments.ts";
import { type Binding, checkMounts } from "../local/mounts.ts";
import type { Layout, ObjectName } from "../local/objects/layout.ts";
import { makeAccounts, makeFrame } from "./container/frame.ts";
import { type Images, imageEnvironment } from "./container/images.ts";
import { INSIDE, RUNTIME } from "./container/inside.ts";
import { containerOptions } from "./container/options.ts";
import { makeRuntimeDirectory, type RuntimeDirectory } from "./container/runtime-directory.ts";
import {
  clearStart,
  makeSocketDirectory,
  publishSocket,
  type ReadyListener,
  socketDirectory,
} from "./container/socket-directory.ts";
import { explainCreate, explainExit } from "./container/start-problem.ts";
import type { Egresses, PreparedEgress } from "./egress.ts";
import type { Engine } from "./engine/engine.ts";
import { createFailed } from "./engine/trouble.ts";
import { type Claimed, claimName } from "./name-conflict.ts";
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
}

/** How often a container that is not ready yet is looked at, to hear of its end. Readiness itself is announced. */
const LOOK_MS = 200;

export class Maker {
  readonly #parts: MakerParts;
  #runtime: RuntimeDirectory | null = null;

  constructor(parts: MakerParts) {
    this.#parts = parts;
  }

  async make(spec: CreateSpec, signal: AbortSignal): Promise<Created> {
    const { settings, layout, images, objects, remover, world } = this.#parts;
    const name: ObjectName = `${spec.labels.sandboxId}-${spec.labels.generation}`;
    const mounts = checkMounts(spec.blueprint.mounts, settings.skillsPath, layout.root);
    await this.#parts.egresses.check(spec.blueprint.network);
    const imageName = spec.blueprint.image ?? settings.docker.image;
    const image = imageEnvironment(await images.ready(imageName, signal));
    signal.throwIfAborted();
    const record = this.#recordOf(spec);
    await objects.intend(name, record);
    const deadline = new AbortController();
    const timer = world.timer(settings.readyTimeoutMs, () => deadline.abort(createFailed("it was not ready in time")));
    const made: { containerId: string | null } = { containerId: null };
    try {
      const bounded = AbortSignal.any([signal, deadline.signal]);
      return await this.#make({ name, spec, record, mounts, imageName, image, made }, bounded);
    } catch (error) {
      await remover.unmake(name, record, made.containerId);
      throw explainCreate(error, imageName, mounts);
    } finally {
      timer.cancel();
    }
  }

  async #make(plan: Plan, signal: AbortSignal): Promise<Created> {
    const { name, spec, made } = plan;
    const { layout, engine, objects } = this.#parts;
    const { bindings, workspace } = await this.#workspaceFor(spec, plan.mounts);
    const egress = await this.#parts.egresses.prepare(name, spec.labels, spec.blueprint.network);
    const config = this.#configOf(spec, plan.image, egress);
    const account = this.#parts.settings.ownsAccount ? null : this.#parts.settings.account;
    const listener = await makeSocketDirectory(layout, name, config, account);
    try {
      signal.throwIfAborted();
      const { containerId } = await this.#container(plan, [...bindings, ...egress.bindings]);
      made.containerId = containerId;
      await objects.made(name, plan.record, { containerId, engineId: engine.facts.id });
      signal.throwIfAborted();
      await engine.start(containerId);
      await this.#ready(containerId, listener, signal);
      if (!publishSocket(layout, name)) throw createFailed("its daemon's socket is not there");
      clearStart(layout, name);
      await this.#parts.egresses.start(name, spec.labels, spec.blueprint.network, containerId);
      return { ref: formatRef({ containerId, name }), place: placeOf(spec), workspace };
    } finally {
      listener.close();
    }
  }

  #container({ name, spec, imageName, image, mounts }: Plan, bindings: readonly Binding[]): Promise<Claimed> {
    const { settings, engine, layout } = this.#parts;
    const runtime = this.#runtimeDirectory();
    const options = containerOptions({
      name: containerName(name),
      labels: containerLabels(spec.labels, placeOf(spec)),
      image: imageName,
      imageNames: Object.keys(image),
      blueprint: spec.blueprint,
      bindings: [
        ...bindings,
        ...mounts,
        ...makeAccounts(join(layout.root, "frames"), engine.facts.isRootless ? { uid: 0, gid: 0 } : settings.account),
        ...runtimeBindings(runtime),
        { from: socketDirectory(layout, name), to: INSIDE.socketDirectory, readOnly: false },
      ],
      bringsNode: runtime.nodePath !== null,
      settings,
      facts: engine.facts,
    });
    return claimName(engine, options, spec.labels);
  }

  /** Announced by the daemon; or the container ends before, and says why. */
  async #ready(containerId: string, listener: ReadyListener, signal: AbortSignal): Promise<void> {
    const over = new AbortController();
    const either = AbortSignal.any([signal, over.signal]);
    try {
      await Promise.race([listener.wait(either), this.#end(containerId, either)]);
    } finally {
      over.abort(new Error("it is over"));
    }
  }

  async #end(containerId: string, signal: AbortSignal): Promise<never> {
    const { engine, world } = this.#parts;
    for (;;) {
      await sleep(world, LOOK_MS, signal);
      const state = (await engine.inspect(containerId))?.State;
      if (state?.Status === "running" || state?.Status === "created") continue;
      const said = await engine.logTail(containerId, 20).catch(() => "");
      signal.throwIfAborted();
      throw explainExit(state ?? null, said);
    }
  }

  async #workspaceFor(spec: CreateSpec, mounts: readonly Binding[]) {
    const { workspaces, layout } = this.#parts;
    const { sandboxId, generation } = spec.labels;
    const mountPoints = mountPointsOf(mounts);
    if (spec.marker === null) {
      const { mntPath } = await workspaces.prepareSlot(sandboxId, generation, { mountPoints });
      return { bindings: [{ from: mntPath, to: "/mnt", readOnly: false }], workspace: "none" } as const;
    }
    const { userDataPath, existing } = await workspaces.prepareHome(spec.marker);
    const bindings = [
      { from: makeFrame(join(layout.root, "frames"), mountPoints), to: "/mnt", readOnly: true },
      { from: userDataPath, to: WORKSPACE_ROOT, readOnly: false },
    ];
    return { bindings, workspace: existing ? "existing" : "new" } as const;
  }

  #configOf({ labels, token, blueprint }: CreateSpec, image: Plan["image"], egress: PreparedEgress): DaemonConfig {
    const { HOME: _home, USER: _user, PWD: _pwd, TMPDIR: _tmpdir, ...usable } = image;
    return {
      sandboxId: labels.sandboxId,
      generation: labels.generation,
      token,
      listen: { path: INSIDE.socket },
      ready: { path: INSIDE.ready },
      orphanTimeoutMs: this.#parts.settings.orphanTimeoutMs,
      environment: { ...BASE_ENVIRONMENT, ...usable, ...egress.environment, ...blueprint.environment },
      defaultCwd: DEFAULT_CWD,
      ownsPidNamespace: true,
    };
  }

  #recordOf(spec: CreateSpec): ObjectRecord {
    const { labels, generation, token } = spec;
    const maker = this.#parts.world.identity;
    return { labels, place: placeOf(spec), credentials: { generation, token }, maker };
  }

  #runtimeDirectory(): RuntimeDirectory {
    const { settings, layout } = this.#parts;
    this.#runtime ??= makeRuntimeDirectory(
      settings.runtimeDirectory ?? join(layout.root, "frames"),
      settings.nodePath,
      settings.daemon,
    );
    return this.#runtime;
  }
}

interface Plan {
  readonly name: ObjectName;
  readonly spec: CreateSpec;
  readonly record: ObjectRecord;
  readonly mounts: readonly Binding[];
  readonly imageName: string;
  /** What the image sets in its environment. */
  readonly image: Readonly<Record<string, string>>;
  /** What there is to unmake. */
  readonly made: { containerId: string | null };
}

function placeOf({ marker, labels }: CreateSpec): Place {
  return marker === null ? `slot:${labels.sandboxId}-${labels.generation}` : "home";
}

function runtimeBindings({ path, nodePath }: RuntimeDirectory): readonly Binding[] {
  const directory = { from: path, to: INSIDE.runtime, readOnly: true };
  if (nodePath === null) return [directory];
  return [directory, { from: nodePath, to: `${INSIDE.runtime}/${RUNTIME.node}`, readOnly: true }];
}

/** What a slot or a frame needs names for, because nothing can be made in it later. */
function mountPointsOf(mounts: readonly Binding[]): readonly MountPoint[] {
  return mounts
    .filter(({ to }) => to.startsWith("/mnt/"))
    .map(({ from, to }) => ({
      path: to.slice("/mnt/".length),
      kind: statSync(from).isDirectory() ? "directory" : "file",
    }));
}
