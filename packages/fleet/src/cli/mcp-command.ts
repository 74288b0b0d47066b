/**
 * `sandlot mcp`: a sandbox's tools for a coding agent that starts this as its child. Standard output belongs to the
 * protocol; everything else goes to standard error.
 */

import { SandlotError } from "@sandlot/contract";
import { resolveSettings } from "../config/resolve-settings.ts";
import { runMcpStdio } from "../mcp/index.ts";
import { openFleet } from "../open-fleet.ts";
import { projectOf, withProject } from "./project-mounts.ts";
import { findGateway, namedGateway, type TargetOptions } from "./target.ts";
import type { Terminal } from "./terminal.ts";
import { makeUsable } from "./usable-home.ts";

export interface McpCommandOptions extends TargetOptions {
  readonly thread?: string;
  readonly user?: string;
  readonly tools?: readonly string[];
  /** Directories of this machine, each with a suffix `:ro` to make it read-only. */
  readonly mount?: readonly string[];
  /** The working directory. */
  readonly workspace?: string;
}

export async function mcpCommand(
  terminal: Terminal,
  version: string,
  options: McpCommandOptions,
  signal: AbortSignal,
): Promise<void> {
  const project = projectOf(options.mount ?? [], options.workspace);
  if (project !== null && (await namedGateway(terminal, options)) !== null)
    throw new SandlotError("invalid_request", { field: project.option, problem: NO_MOUNTS });
  const { gateway, config } = await findGateway(terminal, options);
  const { thread, user, tools } = options;
  const served = {
    version,
    signal,
    ...(thread !== undefined && { thread }),
    ...(user !== undefined && { user }),
    ...(tools !== undefined && { tools }),
    onReady: ({ thread: named }: { readonly thread: string }) => terminal.error(`sandlot: thread ${named}\n`),
    onError: (error: Error) => terminal.error(`sandlot: ${error.message}\n`),
  };
  if (gateway !== null) return runMcpStdio({ source: gateway, ...served });
  await makeUsable(resolveSettings(config, terminal.environment).home);
  await using fleet = await openFleet({ ...(project === null ? config : withProject(config, project)), pool: {} });
  fleet.events.on((event) => {
    if (event.type === "housekeeping-failed" && event.task === "mounts")
      terminal.error(`sandlot: ${event.problem}
`);
  }, "housekeeping-failed");
  await runMcpStdio({ source: fleet, ...served, ...project?.run });
}

const NO_MOUNTS =
  "a gateway does not mount directories of this machine; leave --url out and unset SANDLOT_URL, or configure mounts in the gateway's blueprint";
