/**
 * `sandlot config init`, `schema` and `check`: a starter configuration, the schema, and the resolved values.
 *
 * Values of environment variables are never printed: they hold secrets.
 */

import { writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { resolveGatewaySettings } from "../config/gateway-settings.ts";
import { CONFIG_FILE_NAME } from "../config/load-config.ts";
import { backendEntry, REGISTRY, sectionOf, storeEntry } from "../config/registry.ts";
import { resolveSettings } from "../config/resolve-settings.ts";
import { fleetConfigJsonSchema } from "../config/schema.ts";
import type { LimitSettings, Settings } from "../config/settings.ts";
import { blueprintText, unlimitedText } from "./blueprint-text.ts";
import { onThisMachine } from "./host-trouble.ts";
import { loadSettings } from "./load-settings.ts";
import { type BlueprintRegistries, registriesOf, registryText } from "./registry-lines.ts";
import { printJson, type Terminal } from "./terminal.ts";
import { makeUsable } from "./usable-home.ts";

export function printSchema(terminal: Terminal): void {
  printJson(terminal, fleetConfigJsonSchema());
}

/** Every setting is commented out: the values shown are the defaults. */
const STARTER = `# Configuration of Sandlot. Every key is optional; \`sandlot config schema\` prints all of them with their meaning,
# \`sandlot config check\` what a file comes to. Durations are written 500ms, 30s, 10m, 1h; sizes 512MiB, 2GiB.

# backend: local            # local (Linux namespaces), docker, or memory (no isolation, for tests)
# idleTimeoutMs: 10m        # an unused sandbox ends after this long; its files stay
# maxLifetimeMs: 1d

# limits:
#   max: 50                 # sandboxes of the whole fleet
#   maxPerUser: 5

# blueprints:
#   default:                # what a sandbox is made from when nothing else is asked for
#     limits:
#       memoryBytes: 2GiB
#       diskBytes: 10GiB
#     network:
#       mode: none          # none, allowlist, or open
#   net:
#     network:
#       mode: allowlist
#       registries: [pip, npm]  # where this machine's own tools read packages
#       allow:
#         - { host: api.example.org, ports: [443] }

# gateway:                  # \`sandlot serve\`
#   port: 8750
`;

export async function initConfig(
  terminal: Terminal,
  options: { file: string | undefined; json: boolean },
): Promise<void> {
  const { home } = resolveSettings({}, terminal.environment);
  const path = resolve(options.file ?? join(home, CONFIG_FILE_NAME));
  if (options.file === undefined) await makeUsable(home);
  await onThisMachine("file", path, () => writeFile(path, STARTER, { flag: "wx", mode: 0o600 }));
  if (options.json) return printJson(terminal, { file: path });
  terminal.out(
    `Written to ${path}. Change it, then \`sandlot config check${options.file === undefined ? "" : ` ${options.file}`}\`.\n`,
  );
}

export async function checkConfig(
  terminal: Terminal,
  options: { file: string | undefined; json: boolean },
): Promise<void> {
  const { file, config, gateway } = await loadSettings(options.file, terminal.environment);
  const settings = resolveSettings(config, terminal.environment);
  const { host, port } = resolveGatewaySettings(gateway);
  const registries = await registriesOf(settings.blueprints, terminal.environment);
  const gatewayAt = { host, port };
  if (options.json)
    return printJson(terminal, { file, settings: withoutValues(settings), gateway: gatewayAt, registries });
  const isPoolSet = config.pool !== undefined;
  const listens = `${host.includes(":") ? `[${host}]` : host}:${port}`;
  terminal.out(
    `${file ?? "The default configuration"} is right. It comes to:\n${summary(settings, { listens, isPoolSet }, registries)}`,
  );
}

/** The backend has not been asked. */
const POOL_BY_DEFAULT = "1 of default by `sandlot serve`, where the backend can; `sandlot explain pool` looks";

function summary(
  settings: Settings,
  { listens, isPoolSet }: { readonly listens: string; readonly isPoolSet: boolean },
  registries: readonly BlueprintRegistries[],
): string {
  const { home, fleetId, backend, store, blueprints, pool, limits, ...rest } = settings;
  const blanks = Object.entries(pool).map(([name, count]) => `${count} of ${name}`);
  const lines: readonly (readonly [string, string])[] = [
    ["home", home],
    ["fleet", fleetId],
    ["backend", backend],
    ["store", storeEntry(REGISTRY, store).describe(store)],
    ...Object.values(blueprints).map(({ name, blueprint }) => [`blueprint ${name}`, blueprintText(blueprint)] as const),
    ...registries.flatMap(({ blueprint, registries: lines }) =>
      lines.map((line) => [`${line.tool} of ${blueprint}`, registryText(line)] as const),
    ),
    ["kept ready", isPoolSet ? blanks.join(", ") || "none" : POOL_BY_DEFAULT],
    [
      "limit",
      `${limits.max} sandboxes (${limits.mode}), ${limits.maxPerUser || "any number"} per user${ownLimits(limits)}${engineLimit(limits)}, then ${limits.onFull}`,
    ],
    ["idle timeout", rest.idleTimeoutMs === 0 ? "never" : `${rest.idleTimeoutMs} ms`],
    ["maximum lifetime", rest.maxLifetimeMs === 0 ? "none" : `${rest.maxLifetimeMs} ms`],
    ["gateway", listens],
  ];
  const width = Math.max(18, ...lines.map(([name]) => name.length + 2));
  const warnings = Object.values(blueprints).flatMap(({ name, blueprint }) => {
    const unlimited = unlimitedText(blueprint);
    return unlimited === null
      ? []
      : [`  warning: sandboxes of blueprint ${name} may take the machine: no limit on ${unlimited}\n`];
  });
  const entry = backendEntry(REGISTRY, backend);
  const experimental = entry.experimental(sectionOf(settings, entry)).map((text) => `  experimental: ${text}\n`);
  return [...lines.map(([name, value]) => `  ${name.padEnd(width)}${value}\n`), ...warnings, ...experimental].join("");
}

/** The settings without what may be secret. */
export function withoutValues(settings: Settings): unknown {
  const blueprints = Object.entries(settings.blueprints).map(([name, { hash, blueprint }]) => [
    name,
    {
      hash,
      ...blueprint,
      environment: Object.keys(blueprint.environment),
      network: { ...blueprint.network, secrets: (blueprint.network.secrets ?? []).map(({ name }) => name) },
    },
  ]);
  return { ...settings, blueprints: Object.fromEntries(blueprints) };
}

function ownLimits({ users = {} }: LimitSettings): string {
  const own = Object.entries(users).map(([user, { max }]) => `${user} ${max || "any number"}`);
  return own.length === 0 ? "" : ` (${own.join(", ")})`;
}

function engineLimit({ maxPerEngine }: LimitSettings): string {
  return maxPerEngine === 0 ? "" : `, ${maxPerEngine} per engine`;
}
