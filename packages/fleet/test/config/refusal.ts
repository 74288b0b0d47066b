/** The refusal of `resolveSettings` for a wrong configuration. */

import { type ErrorDetails, isSandlotError } from "@sandlot/contract";
import { resolveSettings } from "../../src/config/resolve-settings.ts";
import type { Environment } from "../../src/config/variables.ts";

export const ENVIRONMENT: Environment = { HOME: "/home/tester" };

/** The details of the `config_invalid` error for this configuration. */
export function refusalOf(config: unknown, environment: Environment = ENVIRONMENT): ErrorDetails["config_invalid"] {
  try {
    resolveSettings(config, environment);
  } catch (error) {
    if (isSandlotError(error, "config_invalid")) return error.details;
    throw error;
  }
  throw new Error(`accepted: ${JSON.stringify(config)}`);
}
