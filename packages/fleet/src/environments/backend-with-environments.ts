/**
 * A backend whose sandboxes have the environment of their blueprint at /opt/env, read-only.
 *
 * Invariant: a sandbox keeps the environment that it was made with; the next one gets the present one.
 */

import { ENVIRONMENT_ROOT, KEPT_HOME, SandlotError } from "@sandlot/contract";
import type { Attachment, Backend, Created, CreateSpec, Target } from "../backend/backend.ts";
import { type Blueprint, homePathOf, type NamedBlueprint } from "../backend/blueprint.ts";
import { EngineListeners } from "../backend/engine-listeners.ts";
import type { World } from "../world/world.ts";
import type { Environments } from "./environments.ts";

const PRUNE_EVERY_MS = 3_600_000;
/** After the first acquires of a new process. */
const PRUNE_FIRST_MS = 60_000;

export function backendWithEnvironments(
  backend: Backend,
  blueprints: Readonly<Record<string, NamedBlueprint>>,
  environments: Environments,
  world: World,
): Backend {
  const homes = new Map<string, string>();
  const create = async (spec: CreateSpec, signal: AbortSignal): Promise<Created> => {
    if (spec.blueprint.setup === undefined) return backend.create(spec, signal);
    const name = nameOf(spec, blueprints);
    const sandbox = `${spec.labels.sandboxId}-${spec.labels.generation}`;
    const used = await environments.use(
      { name, hash: spec.labels.blueprintHash, blueprint: spec.blueprint },
      sandbox,
      signal,
    );
    if (used === null) return backend.create(spec, signal);
    homes.set(spec.labels.sandboxId, homePathOf(spec.blueprint));
    try {
      return await backend.create({ ...spec, blueprint: withEnvironment(spec.blueprint, used.tree) }, signal);
    } catch (error) {
      environments.store.dropUse(sandbox);
      throw error;
    }
  };
  const attach = async (target: Target, signal: AbortSignal): Promise<Attachment> => {
    const attachment = await backend.attach(target, signal);
    const id = environments.store.usedBy(target.sandboxId);
    const facts = id === null ? null : environments.store.facts(id);
    if (facts === null || facts.pythonPaths.length === 0) return attachment;
    try {
      await namePackages(attachment, facts.pythonPaths, homes.get(target.sandboxId) ?? KEPT_HOME);
      return attachment;
    } catch (error) {
      await attachment.close();
      throw error;
    }
  };
  const ending = new AbortController();
  const prune = async (): Promise<void> => {
    const objects = await backend.list({ consistent: true }, ending.signal);
    const living = new Set(objects.map(({ labels }) => `${labels.sandboxId}-${labels.generation}`));
    const plans = await Promise.all(Object.values(blueprints).map((named) => environments.plan(named)));
    await environments.prune(living, new Set(plans.flatMap((plan) => plan?.id ?? [])));
  };
  const listeners = new EngineListeners();
  const watch: Backend["watch"] = (listener) => {
    const stops = [listeners.add(listener), backend.watch(listener)];
    return () => {
      for (const stop of stops) stop();
    };
  };
  let pruning: Promise<void> = Promise.resolve();
  const pruneAndGoOn = (): void => {
    pruning = prune().catch((error: unknown) => {
      if (ending.signal.aborted) return;
      const problem = error instanceof Error ? error.message : String(error);
      listeners.tell({ type: "housekeeping-failed", task: "environments", problem });
    });
    timer = world.timer(PRUNE_EVERY_MS, pruneAndGoOn, { background: true });
  };
  let timer = world.timer(PRUNE_FIRST_MS, pruneAndGoOn, { background: true });
  const close = async (): Promise<void> => {
    timer.cancel();
    ending.abort();
    await pruning;
    await environments.close();
    await backend.close();
  };
  const own: Partial<Backend> = { create, attach, watch, close };
  return new Proxy({} as Backend, {
    get: (_, key) => {
      if (Object.hasOwn(own, key)) return own[key as keyof Backend];
      const member: unknown = Reflect.get(backend, key, backend);
      return typeof member === "function" ? member.bind(backend) : member;
    },
  });
}

/** The blueprint's name where its hash is configured; an acquire's own mounts change the hash, not the environment. */
function nameOf(spec: CreateSpec, blueprints: Readonly<Record<string, NamedBlueprint>>): string {
  const setup = JSON.stringify(spec.blueprint.setup);
  const named = Object.values(blueprints).find(
    ({ hash, blueprint }) => hash === spec.labels.blueprintHash || JSON.stringify(blueprint.setup) === setup,
  );
  if (named !== undefined) return named.name;
  throw new SandlotError("internal", { problem: "a setup belongs to no configured blueprint" });
}

function withEnvironment(blueprint: Blueprint, tree: string): Blueprint {
  const home = homePathOf(blueprint);
  return {
    ...blueprint,
    mounts: [...blueprint.mounts, { hostPath: tree, sandboxPath: ENVIRONMENT_ROOT, readOnly: true }],
    // What the home has comes first.
    environment: {
      NODE_PATH: `${home}/.local/lib/node_modules:${ENVIRONMENT_ROOT}/lib/node_modules`,
      ...blueprint.environment,
    },
  };
}

/**
 * Python reads this file of the user's packages after them, and before those of the system: so an installed newer
 * version wins, and pip may install one. The home of a blank comes later, with its thread.
 */
async function namePackages({ sandbox }: Attachment, pythonPaths: readonly string[], home: string): Promise<void> {
  for (const path of pythonPaths) {
    const directory = `${home}/.local/${path}`;
    const text = `${ENVIRONMENT_ROOT}/${path}\n`;
    try {
      await sandbox.files.stat(home);
    } catch (error) {
      if (error instanceof SandlotError && error.code === "file_not_found") return;
      throw error;
    }
    await sandbox.files.write(`${directory}/_env.pth`, text);
  }
}
