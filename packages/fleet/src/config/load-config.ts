/** Finds and reads a configuration file. The parser is loaded only when there is one: most homes have none. */

import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { isSandlotError, SandlotError } from "@sandlot/contract";
import { errnoOf } from "../world/disk-trouble.ts";
import type { FleetConfig } from "./fleet-config.ts";
import type { GatewayConfig } from "./gateway-settings.ts";
import { homeOf } from "./home.ts";
import type { Environment } from "./variables.ts";

/** Searched in the fleet's home when no file is named. */
export const CONFIG_FILE_NAME = "sandlot.yaml";

export interface LoadedConfig {
  /** Its file; `null` for the defaults. */
  readonly file: string | null;
  readonly config: FleetConfig;
  /** The section `gateway` of the file. */
  readonly gateway: GatewayConfig;
}

/** The named file, or `$SANDLOT_CONFIG`, or `sandlot.yaml` in `$SANDLOT_HOME`; without any, the defaults. */
export async function loadConfig(named: string | undefined, environment: Environment): Promise<LoadedConfig> {
  // An empty variable counts as unset, as in shells.
  const file = named ?? (environment.SANDLOT_CONFIG || undefined);
  if (file !== undefined) return readConfig(resolve(file), environment);
  const inHome = resolve(homeOf(undefined, environment), CONFIG_FILE_NAME);
  try {
    return await readConfig(inHome, environment);
  } catch (error) {
    if (isMissing(error)) return { file: null, config: {}, gateway: {} };
    throw error;
  }
}

async function readConfig(file: string, environment: Environment): Promise<LoadedConfig> {
  const text = await readFile(file, "utf8").catch((cause: unknown) => {
    const missing = errnoOf(cause) === "ENOENT";
    const problem = missing ? "it does not exist" : `it cannot be read: ${(cause as Error).message}`;
    throw new SandlotError("config_unreadable", { file, problem }, { cause });
  });
  const { parseConfig } = await import("./parse-config.ts");
  return parseConfig(file, text, environment);
}

function isMissing(error: unknown): boolean {
  return isSandlotError(error, "config_unreadable") && errnoOf(error.cause) === "ENOENT";
}
