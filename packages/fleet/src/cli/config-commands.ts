/**
 * `sandlot config schema` and `sandlot config check`: what can be configured, and what a configuration comes to.
 *
 * Values of environment variables are never printed: they are where secrets are.
 */

import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { SandlotError } from "@sandlot/contract";
import { resolveSettings } from "../config/resolve-settings.ts";
import { fleetConfigJsonSchema } from "../config/schema.ts";
import type { Settings } from "../config/settings.ts";
import { printJson, type Terminal } from "./terminal.ts";

export function printSchema(terminal: Terminal): void {
  printJson(terminal, fleetConfigJsonSchema());
}

export async function checkConfig(
  terminal: Terminal,
  options: { file: string | undefined; json: boolean },
): Promise<void> {
  // An empty variable is an unset one, as shells have it.
  const file = options.file ?? (terminal.environment.SANDLOT_CONFIG || undefined);
  const config = file === undefined ? undefined : await readConfigFile(file);
  const settings = resolveSettings(config, terminal.environment);
  if (options.json) return printJson(terminal, { file: file ?? null, settings: withoutValues(settings) });
  terminal.out(`${file ?? "The default configuration"} is right. It comes to:\n${summary(settings)}`);
}

/** What a configuration file holds, unchecked. JSON, with an optional `$schema` for editors. */
async function readConfigFile(file: string): Promise<unknown> {
  const path = resolve(file);
  const text = await readFile(path, "utf8").catch((cause: unknown) => {
    throw fileProblem(`the file ${path} cannot be read`, cause);
  });
  let config: unknown;
  try {
    config = JSON.parse(text);
  } catch (cause) {
    throw fileProblem(`the file ${path} is not JSON`, cause);
  }
  if (config === null || typeof config !== "object" || Array.isArray(config) || !("$schema" in config)) return config;
  const { $schema: _, ...rest } = config;
  return rest;
}

function fileProblem(what: string, cause: unknown): SandlotError {
  const why = cause instanceof Error ? `: ${cause.message}` : "";
  return new SandlotError("config_invalid", { path: "", problem: `${what}${why}` }, { cause });
}

function summary({ home, fleetId, backend, store, blueprints, pool, limits, ...rest }: Settings): string {
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
  ];
  return lines.map(([name, value]) => `  ${name.padEnd(18)}${value}\n`).join("");
}

function withoutValues(settings: Settings): unknown {
  const blueprints = Object.entries(settings.blueprints).map(([name, { hash, blueprint }]) => [
    name,
    { hash, ...blueprint, environment: Object.keys(blueprint.environment) },
  ]);
  return { ...settings, blueprints: Object.fromEntries(blueprints) };
}
