/**
 * `sandlot mcp`: the tools of a sandbox for a coding agent that starts this as its child. Standard output belongs to the
 * protocol; everything else goes to standard error.
 */

import { SandlotClient } from "@sandlot/client";
import { loadConfig } from "../config/load-config.ts";
import { resolveSettings } from "../config/resolve-settings.ts";
import { readOperatorKey } from "../gateway/keys/operator-key.ts";
import { runMcpStdio } from "../mcp/index.ts";
import { openFleet } from "../open-fleet.ts";
import type { Terminal } from "./terminal.ts";

export interface McpCommandOptions {
  readonly config?: string;
  readonly url?: string;
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
  const { environment } = terminal;
  const { config } = await loadConfig(options.config, environment);
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
  const url = options.url ?? (environment.SANDLOT_URL || undefined);
  if (url !== undefined) {
    const { home } = resolveSettings(config, environment);
    const apiKey = environment.SANDLOT_API_KEY || (await readOperatorKey(home)) || undefined;
    return runMcpStdio({ source: new SandlotClient(apiKey === undefined ? { url } : { url, apiKey }), ...served });
  }
  await using fleet = await openFleet({ ...config, pool: {} });
  await runMcpStdio({ source: fleet, ...served });
}
