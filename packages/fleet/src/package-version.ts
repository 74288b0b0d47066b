/** The package's own version, as people and MCP clients are told it. */

import { readFileSync } from "node:fs";
import { z } from "zod";

/** The path is the same from `src` and from `dist`. */
export function packageVersion(): string {
  const manifest: unknown = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
  return z.object({ version: z.string() }).parse(manifest).version;
}
