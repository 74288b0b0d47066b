/**
 * `sandlot serve`: a gateway over the configured fleet, until a signal stops it. Then it drains and hands over: the
 * sandboxes stay for the next one.
 */

import pino from "pino";
import { resolveSettings } from "../config/resolve-settings.ts";
import { type GatewayConfig, operatorKeyPath, resolveGatewaySettings, serve } from "../gateway/index.ts";
import { openFleetAndHost } from "../open-fleet.ts";
import { systemWorld } from "../world/system-world.ts";
import { loadSettings } from "./load-settings.ts";
import { withProgress } from "./progress.ts";
import type { Terminal } from "./terminal.ts";
import { makeUsable } from "./usable-home.ts";

export interface ServeCommandOptions {
  readonly config?: string;
  readonly host?: string;
  readonly port?: number;
  readonly behindProxy?: boolean;
  /** At its end, also stop the sandboxes that no other process holds. */
  readonly destroy?: boolean;
  readonly logLevel: string;
  readonly json: boolean;
}

export async function serveCommand(
  terminal: Terminal,
  options: ServeCommandOptions,
  signal: AbortSignal,
): Promise<void> {
  const { config, gateway } = await loadSettings(options.config, terminal.environment);
  const settings = withFlags(gateway, options);
  // Refused before anything is opened.
  const { advertise: address } = resolveGatewaySettings(settings);
  const logger = pino({ level: options.logLevel }, pino.destination(2));
  const { home } = resolveSettings(config, terminal.environment);
  await makeUsable(home);
  const open = () =>
    serve({
      openFleet: () => openFleetAndHost(config, { address }),
      ...{ home, gateway: settings, world: systemWorld(), logger },
    });
  const served = await withProgress(terminal, "Opening the fleet", open);
  try {
    tell(terminal, served.url, served.previewUrl, home, served.madeOperatorKey, options.json);
    await aborted(signal);
    if (!options.json) terminal.error("Draining; sandboxes stay for the next one.\n");
  } finally {
    await served.close({ destroy: options.destroy === true });
  }
}

function withFlags(gateway: GatewayConfig, { host, port, behindProxy }: ServeCommandOptions): GatewayConfig {
  return {
    ...gateway,
    ...(host !== undefined && { host }),
    ...(port !== undefined && { port }),
    ...(behindProxy === true && { behindProxy }),
  };
}

function tell(terminal: Terminal, url: string, previewUrl: string, home: string, made: boolean, json: boolean): void {
  if (json) {
    terminal.out(`${JSON.stringify({ listening: url })}\n`);
    return;
  }
  const key = operatorKeyPath(home);
  terminal.out(`Sandlot listens at ${url}   (API: ${url}/docs, previews: ${previewUrl})\n`);
  terminal.out(`${made ? "A first operator key was made" : "The operator key is"} in ${key}\n\n`);
  terminal.out("Try it from another terminal:\n\n");
  terminal.out(
    `  curl -s ${url}/v1/threads/hello/exec -H "Authorization: Bearer $(cat ${shellWord(key)})" \\\n` +
      `    -H 'Content-Type: application/json' -d '{"command": "echo hello from $(hostname); id"}'\n\n`,
  );
}

/** Unquoted where a shell would take it as one word; otherwise in quotes. */
function shellWord(path: string): string {
  return /^[\w./@%+:,=-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
