/**
 * `@sandlot/sandboxd`: where the daemon is. It is one file without dependencies, made by `bundle.mjs`, and runs on Node 20
 * and newer, whatever runs the fleet.
 */

import { fileURLToPath } from "node:url";

/** The daemon, as a file to mount into a sandbox and run. The same from source and from the build. */
export const SANDBOXD_FILE: string = fileURLToPath(new URL("../dist/sandboxd.cjs", import.meta.url));
