/**
 * A backend whose sandboxes have the environment of their blueprint at /opt/env, read-only.
 *
 * Invariant: a sandbox keeps the environment that it was made with; the next one gets the present one.
 */

import { ENVIRONMENT_ROOT, type EngineRef, SandlotError } from "@sandlot/contract";
import type { Attachment, Backend, Created, CreateSpec, Target } from "../backend/backend.ts";
import { type Blueprint, homePathOf, type NamedBlueprint } from "../backend/blueprint.ts";
import { EngineListeners } from "../backend/engine-listeners.ts";
import { within } from "../world/waiting.ts";
import type { World } from "../world/world.ts";
import type { Environments, Living } from "./environments.ts";
import { PythonPackages } from "./python-packages.ts";

const PRUNE_EVERY_MS = 3_600_000;
/** After the first acquires of a new process. */
const PRUNE_FIRST_MS = 60_000;
const NAMING_MS = 5_000;
const PLAN_AGAIN_MS = 60_000;

type Blueprints = Readonly<Record<string, NamedBlueprint>>;

export function backendWithEnvironments(
  backend: Backend,
  blueprints: Blueprints,
  environments: Environments,
  world: World,
): Backend {
  const { store } = environments;
  const ending = new AbortController();
  const listeners = new EngineListeners();
  const python = new PythonPackages(store);
  const made = new Map<EngineRef, string>();

  const failed = (task: string, error: unknown): void => {
    const problem = error instanceof Error ? error.message : String(error);
    listeners.tell({ type: "housekeeping-failed", task, problem });
  };

  const create = async (spec: CreateSpec, signal: AbortSignal): Promise<Created> => {
    const { blueprint, labels } = spec;
    if (blueprint.setup === undefined) return backend.create(spec, signal);
    const sandbox = `${labels.sandboxId}-${labels.generation}`;
    const named = { name: nameOf(spec, blueprints), hash: labels.blueprintHash, blueprint };
    const where = { engine: backend.engineId, home: homePathOf(blueprint) };
    const used = await environments.use(named, sandbox, where, signal);
    if (used === null) return backend.create(spec, signal);
    // The use stays where this rejects: after an abort the sandbox may still be made. A prune drops it when there is none.
    const created = await backend.create({ ...spec, blueprint: withEnvironment(blueprint, used.tree) }, signal);
    made.set(created.ref, sandbox);
    return created;
  };

  /** No process is left, so nothing has it mounted. What other processes made goes with a prune. */
  const destroy = async (ref: EngineRef, signal: AbortSignal): Promise<void> => {
    await backend.destroy(ref, signal);
    const sandbox = made.get(ref);
    if (sandbox !== undefined) store.dropUse(sandbox);
    made.delete(ref);
  };

  const attach = async (target: Target, signal: AbortSignal): Promise<Attachment> => {
    const attachment = await backend.attach(target, signal);
    const late = () => new Error(`the home of ${target.sandboxId} took no file within ${NAMING_MS} ms`);
    try {
      await within(world, NAMING_MS, signal, late, () => python.name(attachment.sandbox, target));
    } catch (error) {
      if (signal.aborted) {
        await attachment.close();
        throw error;
      }
      // A full disk is for the thread to mend, and it needs its sandbox for that.
      failed("environments", error);
    }
    return attachment;
  };

  const environmentOf: Backend["environmentOf"] = (sandboxId) => store.usedBy(sandboxId)?.id ?? null;

  let isAskedFrom = Number.NEGATIVE_INFINITY;
  const isOutdated: Backend["isOutdated"] = async ({ sandboxId, blueprint }) => {
    const [use, named] = [store.usedBy(sandboxId), blueprints[blueprint]];
    if (use === null || named === undefined || world.monotonicMs() < isAskedFrom) return false;
    try {
      const plan = await environments.plan(named, ending.signal);
      return plan !== null && plan.id !== use.id;
    } catch (error) {
      // A file of the setup is gone, or the image cannot be pulled: that is not asked at every look of the pool.
      isAskedFrom = world.monotonicMs() + PLAN_AGAIN_MS;
      failed("environments", error);
      return false;
    }
  };

  const prune = async (): Promise<void> => {
    const living = await livingOf(backend, ending.signal);
    const plans = await Promise.all(Object.values(blueprints).map((named) => environments.plan(named, ending.signal)));
    await environments.prune(living, new Set(plans.flatMap((plan) => plan?.id ?? [])));
  };

  const watch: Backend["watch"] = (listener) => {
    const stops = [listeners.add(listener), backend.watch(listener)];
    return () => {
      for (const stop of stops) stop();
    };
  };

  let pruning: Promise<void> = Promise.resolve();
  const pruneAndGoOn = (): void => {
    pruning = prune().catch((error: unknown) => {
      if (!ending.signal.aborted) failed("environments", error);
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

  const own: Partial<Backend> = { create, destroy, attach, environmentOf, isOutdated, watch, close };
  return new Proxy({} as Backend, {
    get: (_, key) => {
      if (Object.hasOwn(own, key)) return own[key as keyof Backend];
      const member: unknown = Reflect.get(backend, key, backend);
      return typeof member === "function" ? member.bind(backend) : member;
    },
  });
}

/** The sandboxes of this home that the engine has. */
export async function livingOf(backend: Pick<Backend, "engineId" | "list">, signal: AbortSignal): Promise<Living> {
  const objects = await backend.list({ consistent: true }, signal);
  const sandboxes = new Set(objects.map(({ labels }) => `${labels.sandboxId}-${labels.generation}`));
  return { engine: backend.engineId, sandboxes };
}

/** The blueprint's name where its hash is configured; an acquire's own mounts change the hash, not the environment. */
function nameOf(spec: CreateSpec, blueprints: Blueprints): string {
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
