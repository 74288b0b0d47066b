/**
 * A fleet for the length of one command: no gateway is needed, and nothing keeps running that was not there before.
 */

import { loadConfig } from "../config/load-config.ts";
import type { Fleet } from "../fleet.ts";
import { openFleet } from "../open-fleet.ts";
import type { Terminal } from "./terminal.ts";

export interface FleetOptions {
  /** The configuration file; without one, what the environment names. */
  readonly config?: string | undefined;
}

/** Opens the configured fleet, and closes it whatever happens. Sandboxes stay for the next command. */
export async function withFleet<T>(
  terminal: Terminal,
  { config: file }: FleetOptions,
  work: (fleet: Fleet) => Promise<T>,
): Promise<T> {
  const { config } = await loadConfig(file, terminal.environment);
  // Blanks that are made ready for others would only make this one command wait.
  await using fleet = await openFleet({ ...config, pool: {} });
  return await work(fleet);
}
