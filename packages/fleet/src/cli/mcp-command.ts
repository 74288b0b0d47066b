/**
 * `sandlot mcp`: the tools of a sandbox for a coding agent that starts this as its child. Standard output belongs to the
 * protocol; everything else goes to standard error.
 */

import { resolveSettings } from "../config/resolve-settings.ts";
import { runMcpStdio } from "../mcp/index.ts";
import { openFleet } from "../open-fleet.ts";
import { findGateway, type TargetOptions } from "./target.ts";
import type { Terminal } from "./terminal.ts";
import { makeUsable } from "./usable-home.ts";

export interface McpCommandOptions extends TargetOptions {
  readonly thread?: string;
  readonly user?: string;
  readonly tools?: readonly string[];
}

export async function mcpCommand(
  terminal: Terminal,
  version: string,
  options: McpCommandOptions,
  signal: AbortSignal,
): Promise<void> {
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
  await using fleet = await openFleet({ ...config, pool: {} });
  await runMcpStdio({ source: fleet, ...served });
}
