/**
 * A command's settings: the configuration file, then the environment, then flags; the later wins. Each command handles
 * its own flags.
 */

import { SandlotError } from "@sandlot/contract";
import { type LoadedConfig, loadConfig } from "../config/load-config.ts";
import type { Environment } from "../config/variables.ts";

/** Sets a key of the file's configuration. */
type Apply = (value: string, name: string, loaded: LoadedConfig) => LoadedConfig;

/** Every variable that stands for a key of the file. Secrets are not among them. */
const VARIABLES: Readonly<Record<string, { readonly key: string; readonly apply: Apply }>> = {
  SANDLOT_HOME: fleet("home", (value) => value),
  SANDLOT_BACKEND: fleet("backend", (value) => value),
  SANDLOT_HOST: gateway(["host"], (value) => value),
  SANDLOT_PORT: gateway(["port"], wholeNumber),
  SANDLOT_BEHIND_PROXY: gateway(["behindProxy"], yesOrNo),
  SANDLOT_ADVERTISE: gateway(["advertise"], (value) => value),
  SANDLOT_TLS_CERT: gateway(["tls", "certFile"], (value) => value),
  SANDLOT_TLS_KEY: gateway(["tls", "keyFile"], (value) => value),
  SANDLOT_ALLOWED_HOSTS: gateway(["allowedHosts"], list),
  SANDLOT_ALLOWED_ORIGINS: gateway(["allowedOrigins"], list),
  SANDLOT_PREVIEW_PORT: gateway(["preview", "port"], wholeNumber),
  SANDLOT_PREVIEW_DOMAIN: gateway(["preview", "domain"], (value) => value),
};

export async function loadSettings(named: string | undefined, environment: Environment): Promise<LoadedConfig> {
  let loaded = await loadConfig(named, environment);
  for (const [name, { apply }] of Object.entries(VARIABLES)) {
    const value = environment[name];
    // An empty variable counts as unset, as in shells.
    if (value !== undefined && value !== "") loaded = apply(value, name, loaded);
  }
  return loaded;
}

/** The variable that stands for a key of the file, for each key that one is set for. */
export function keysFromVariables(environment: Environment): ReadonlyMap<string, string> {
  const set = Object.entries(VARIABLES).filter(([name]) => (environment[name] ?? "") !== "");
  return new Map(set.map(([name, { key }]) => [key, name]));
}

type Parse = (value: string, name: string) => unknown;

function fleet(key: string, parse: Parse): { readonly key: string; readonly apply: Apply } {
  return {
    key,
    apply: (value, name, loaded) => ({ ...loaded, config: { ...loaded.config, [key]: parse(value, name) } }),
  };
}

function gateway(path: readonly string[], parse: Parse): { readonly key: string; readonly apply: Apply } {
  return {
    key: `gateway.${path.join(".")}`,
    apply: (value, name, loaded) => ({ ...loaded, gateway: withKey(loaded.gateway, path, parse(value, name)) }),
  };
}

function withKey<T extends object>(section: T, [first = "", ...rest]: readonly string[], value: unknown): T {
  const inner = (section as Readonly<Record<string, unknown>>)[first];
  const below = typeof inner === "object" && inner !== null ? inner : {};
  return { ...section, [first]: rest.length === 0 ? value : withKey(below, rest, value) };
}

function wholeNumber(value: string, name: string): number {
  if (!/^\d+$/.test(value)) throw unusable(name, "it is not a whole number");
  return Number(value);
}

function yesOrNo(value: string, name: string): boolean {
  if (value === "1" || value === "true") return true;
  if (value === "0" || value === "false") return false;
  throw unusable(name, "it is neither true nor false");
}

function list(value: string): readonly string[] {
  return value
    .split(",")
    .map((one) => one.trim())
    .filter((one) => one !== "");
}

function unusable(name: string, problem: string): SandlotError {
  return new SandlotError("config_invalid", { path: name, problem });
}
