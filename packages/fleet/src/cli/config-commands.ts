/**
 * `sandlot config schema` and `sandlot config check`: what can be configured, and what a configuration comes to.
 *
 * Values of environment variables are never printed: they are where secrets are.
 */

import { resolveSettings } from "../config/resolve-settings.ts";
import { fleetConfigJsonSchema } from "../config/schema.ts";
import type { Settings } from "../config/settings.ts";
import { resolveGatewaySettings } from "../gateway/settings.ts";
import { loadSettings } from "./load-settings.ts";
import { printJson, type Terminal } from "./terminal.ts";

export function printSchema(terminal: Terminal): void {
  printJson(terminal, fleetConfigJsonSchema());
}

export async function checkConfig(
  terminal: Terminal,
  options: { file: string | undefined; json: boolean },
): Promise<void> {
  const { file, config, gateway } = await loadSettings(options.file, terminal.environment);
  const settings = resolveSettings(config, terminal.environment);
  const { host, port } = resolveGatewaySettings(gateway);
  if (options.json) return printJson(terminal, { file, settings: withoutValues(settings), gateway: { host, port } });
  const listens = `${host.includes(":") ? `[${host}]` : host}:${port}`;
  terminal.out(`${file ?? "The default configuration"} is right. It comes to:\n${summary(settings, listens)}`);
}

function summary(settings: Settings, listens: string): string {
  const { home, fleetId, backend, store, blueprints, pool, limits, ...rest } = settings;
  const blanks = Object.entries(pool).map(([name, count]) => `${count} of ${name}`);
  const lines: readonly (readonly [string, string])[] = [
    ["home", home],
    ["fleet", fleetId],
    ["backend", backend],
    ["store", store.type === "sqlite" ? `sqlite at ${store.path}` : "memory"],
    ["blueprints", Object.keys(blueprints).join(", ")],
    ["kept ready", blanks.join(", ") || "none"],
    [
      "limit",
      `${limits.max} sandboxes (${limits.mode}), ${limits.maxPerUser || "any number"} per user, then ${limits.onFull}`,
    ],
    ["idle timeout", rest.idleTimeoutMs === 0 ? "never" : `${rest.idleTimeoutMs} ms`],
    ["maximum lifetime", rest.maxLifetimeMs === 0 ? "none" : `${rest.maxLifetimeMs} ms`],
    ["gateway", listens],
  ];
  return lines.map(([name, value]) => `  ${name.padEnd(18)}${value}\n`).join("");
}

function withoutValues(settings: Settings): unknown {
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
