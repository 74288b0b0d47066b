/**
 * From the user's configuration to settings that the fleet can rely on: checked, completed, resolved, frozen.
 *
 *   unknown ──schema──▶ completed ──places, variables, relations──▶ Settings
 *
 * Every mistake is `config_invalid` with the path of the key, thrown before anything is opened. The file system is only
 * read, never changed.
 */

import { type Blueprint, type BlueprintMount, type EnvironmentSetup, hashBlueprint } from "../backend/blueprint.ts";
import type { BoundSecret } from "../backend/network/policy.ts";
import { type Machine, resolveLimits, thisMachine, withoutGaps } from "./default-limits.ts";
import { DEFAULT_BLUEPRINT } from "./defaults.ts";
import { pathProblem } from "./home.ts";
import { resolvePlaces } from "./places.ts";
import { type Problem, problemsOf, refuse, showPath } from "./problems.ts";
import { backendEntry, REGISTRY, type Registry, type Sections, sectionOf } from "./registry.ts";
import { relationProblems } from "./relations.ts";
import { type CompletedBlueprint, type CompletedConfig, configSchemaOf, fleetConfigSchema } from "./schema.ts";
import type { NamedBlueprint, Settings } from "./settings.ts";
import { type Environment, expandVariables } from "./variables.ts";

/** `environment` supplies `$NAME` and the default home: `process.env` outside tests, as `machineAt` is this machine. */
export function resolveSettings(
  config: unknown,
  environment: Environment,
  machineAt: (home: string) => Machine = thisMachine,
  registry: Registry = REGISTRY,
): Settings {
  const completed = completeConfig(config, registry);
  const problems: Problem[] = [];
  const places = resolvePlaces(completed, environment, problems, registry);
  const sections = resolveSections(completed, registry);
  const backend = backendEntry(registry, completed.backend);
  const section = sectionOf(sections, backend);
  const machine = backend.canLimit(section) ? machineAt(places.home) : null;
  const volumes = backend.volumes?.(section) ?? null;
  const blueprintKey = backend.blueprintKey(section);
  const blueprints = resolveBlueprints(completed, blueprintKey, volumes, machine, environment, problems);
  if (backend.hasPods !== true) problems.push(...podProblems(completed));
  const skillsPath = completed.skills?.hostPath ?? null;
  const wrongSkills = skillsPath === null ? undefined : pathProblem(skillsPath, environment);
  if (wrongSkills !== undefined) problems.push({ ...wrongSkills, path: "skills.hostPath" });
  problems.push(...relationProblems(completed));
  refuse(problems);
  const { skills: _, accountIds = null, pool, ...unchanged } = completed;
  const resolved = {
    ...places,
    ...sections,
    accountIds,
    maxLifetimeMs: lifetimeOf(completed.maxLifetimeMs, backend.lifetimeMaxMs?.(section)),
    skillsPath,
    blueprints,
    pool: dictionary(Object.entries(pool)),
  };
  return deepFreeze({ ...unchanged, ...resolved });
}

/** The shorter of the configured lifetime, of which 0 is none, and that of the engine. */
function lifetimeOf(configuredMs: number, engineMs: number | undefined): number {
  if (engineMs === undefined) return configuredMs;
  return configuredMs === 0 ? engineMs : Math.min(configuredMs, engineMs);
}

/** Every backend's section, also of unused ones: sandboxes of another backend may have to be ended. */
function resolveSections(completed: CompletedConfig, { backends }: Registry): Sections {
  const sections = Object.values(backends)
    .filter(({ configSchema }) => configSchema !== null)
    .map((entry) => [entry.name, entry.settings(sectionOf(completed, entry))]);
  return Object.fromEntries(sections) as Sections;
}

function completeConfig(config: unknown, registry: Registry): CompletedConfig {
  const schema = registry === REGISTRY ? fleetConfigSchema : configSchemaOf(registry);
  const input = config === undefined ? {} : config;
  const parsed = schema.safeParse(input);
  if (parsed.success) return parsed.data;
  refuse(problemsOf(parsed.error.issues, schema, input));
  throw parsed.error; // A failed parse has at least one issue.
}

function resolveBlueprints(
  completed: CompletedConfig,
  engine: string,
  volumes: readonly string[] | null,
  machine: Machine | null,
  environment: Environment,
  problems: Problem[],
): Readonly<Record<string, NamedBlueprint>> {
  const configured: Record<string, CompletedBlueprint> = {
    [DEFAULT_BLUEPRINT]: BARE_BLUEPRINT,
    ...completed.blueprints,
  };
  return dictionary(
    Object.entries(configured).map(([name, { checkpoints, ...given }]) => {
      const blueprint: Blueprint = {
        ...given,
        mounts: resolveMounts(name, given.mounts, volumes, environment, problems),
        limits: resolveLimits(given.limits, machine),
        environment: resolveVariables(name, given.environment, environment, problems),
        network: { ...given.network, secrets: resolveSecrets([name], given.network.secrets, environment, problems) },
        ...(given.setup !== undefined && { setup: resolveSetup(name, given.setup, environment, problems) }),
      };
      // Only configured limits: each process chooses defaults, and all processes of a home must agree on the hash.
      const hash = hashBlueprint(engine, { ...blueprint, limits: withoutGaps(given.limits) });
      // A sandbox cannot observe them.
      return [name, { name, hash, blueprint, ...(checkpoints !== undefined && { checkpoints }) }];
    }),
  );
}

/** `default` when it is not configured: it requires no capability. */
const BARE_BLUEPRINT: CompletedBlueprint = {
  environment: {},
  home: "kept",
  limits: {},
  mounts: [],
  network: { mode: "none", allow: [], secrets: [], registries: [], mirrors: [] },
};

/** `volumes`: the names that the backend knows; `null` where it has none. */
function resolveMounts(
  blueprint: string,
  mounts: CompletedBlueprint["mounts"],
  volumes: readonly string[] | null,
  environment: Environment,
  problems: Problem[],
): readonly BlueprintMount[] {
  return mounts.flatMap(({ hostPath, volume, sandboxPath, readOnly }, index): BlueprintMount[] => {
    const at = (...path: string[]) => showPath(["blueprints", blueprint, "mounts", index, ...path]);
    if (hostPath !== undefined && volume === undefined) {
      const wrong = pathProblem(hostPath, environment);
      if (wrong !== undefined) problems.push({ ...wrong, path: at("hostPath") });
      return [{ hostPath, sandboxPath, readOnly }];
    }
    if (volume !== undefined && hostPath === undefined) {
      if (volumes?.includes(volume) !== true) problems.push({ path: at("volume"), problem: unknownVolume(volumes) });
      return [{ volume, sandboxPath, readOnly }];
    }
    problems.push({ path: at(), problem: "must have `hostPath` or `volume`, and only one of them" });
    return [];
  });
}

function unknownVolume(volumes: readonly string[] | null): string {
  if (volumes === null) return "means nothing here: this backend has no volumes; use `hostPath`";
  const known = volumes.length === 0 ? "there are none" : `configured are ${volumes.join(", ")}`;
  return `names a volume that the backend's section does not define; ${known}`;
}

function podProblems({ backend, blueprints }: CompletedConfig): Problem[] {
  return Object.entries(blueprints)
    .filter(([, { pod }]) => pod !== undefined)
    .map(([name]) => ({
      path: showPath(["blueprints", name, "pod"]),
      problem: `means nothing with backend ${backend}, which has no pods; remove it`,
    }));
}

function resolveSetup(
  blueprint: string,
  setup: NonNullable<CompletedBlueprint["setup"]>,
  environment: Environment,
  problems: Problem[],
): EnvironmentSetup {
  for (const [name, path] of Object.entries(setup.files)) {
    const wrong = pathProblem(path, environment);
    if (wrong !== undefined)
      problems.push({ ...wrong, path: showPath(["blueprints", blueprint, "setup", "files", name]) });
  }
  const secrets = resolveSecrets([blueprint, "setup"], setup.network.secrets, environment, problems);
  return { ...setup, network: { ...setup.network, secrets } };
}

function resolveSecrets(
  owner: readonly string[],
  secrets: CompletedBlueprint["network"]["secrets"],
  environment: Environment,
  problems: Problem[],
): readonly BoundSecret[] {
  return secrets.map((secret, index) => {
    const expansion = expandVariables(secret.value, environment);
    if (expansion.ok) return { ...secret, value: expansion.value };
    const path = showPath(["blueprints", ...owner, "network", "secrets", index, "value"]);
    problems.push({ path, problem: expansion.problem });
    return secret;
  });
}

function resolveVariables(
  blueprint: string,
  values: Readonly<Record<string, string>>,
  environment: Environment,
  problems: Problem[],
): Readonly<Record<string, string>> {
  return dictionary(
    Object.entries(values).map(([name, text]) => {
      const expansion = expandVariables(text, environment);
      if (expansion.ok) return [name, expansion.value];
      problems.push({ path: showPath(["blueprints", blueprint, "environment", name]), problem: expansion.problem });
      return [name, ""];
    }),
  );
}

/** An object with only its own keys: looking up a caller's name never finds `constructor`. */
function dictionary<T>(entries: Iterable<readonly [string, T]>): Record<string, T> {
  const made: Record<string, T> = Object.create(null);
  for (const [key, value] of entries) made[key] = value;
  return made;
}

function deepFreeze<T>(value: T): T {
  if (value !== null && typeof value === "object" && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const inner of Object.values(value)) deepFreeze(inner);
  }
  return value;
}
