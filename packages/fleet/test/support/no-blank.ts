/** A home whose gateways keep no blank, for tests that count sandboxes or remove the home at their end. */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CONFIG_FILE_NAME } from "../../src/config/load-config.ts";

/** A configuration that is there stays. */
export function keepNoBlank(home: string): void {
  mkdirSync(home, { recursive: true, mode: 0o700 });
  try {
    writeFileSync(join(home, CONFIG_FILE_NAME), "pool: {}\n", { flag: "wx" });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
}
