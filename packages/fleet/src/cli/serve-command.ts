/**
 * `sandlot serve`: a gateway over the configured fleet, until a signal stops it. Then it drains and hands over: the
 * sandboxes stay for the next one.
 */

import pino from "pino";
import { resolveSettings } from "../config/resolve-settings.ts";
import {
  type GatewayConfig,
  LogTail,
  operatorKeyId,
  operatorKeyPath,
  readOperatorKey,
  resolveGatewaySettings,
  type ServedGateway,
  serve,
} from "../gateway/index.ts";
import { openFleetAndHost } from "../open-fleet.ts";
import { systemWorld } from "../world/system-world.ts";
import { gatewayAbout } from "./gateway-about.ts";
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
  const { environment } = terminal;
  const { config, gateway } = await loadSettings(options.config, environment);
  const settings = withFlags(gateway, options);
  // Refused before anything is opened.
  const resolved = resolveGatewaySettings(settings);
  const { advertise: address } = resolved;
  const tail = new LogTail();
  const { logLevel: level } = options;
  // Each stream of several has a level of its own; the logger's decides before.
  const streams = [pino.destination(2), tail].map((stream) => ({ stream, level: "trace" as const }));
  const logger = pino({ level }, pino.multistream(streams));
  const fleetSettings = resolveSettings(config, environment);
  const { home } = fleetSettings;
  await makeUsable(home);
  const known = await gatewayAbout({
    ...{ named: options.config, environment, settings: fleetSettings, gateway: resolved, flags: flagsOf(options) },
  });
  const about = { ...known, log: (limit: number) => tail.read(limit) };
  const open = () =>
    serve({
      openFleet: () => openFleetAndHost(config, { address, keepsBlank: true }),
      ...{ home, gateway: settings, about, world: systemWorld(), logger },
    });
  const served = await withProgress(terminal, "Opening the fleet", open);
  try {
    await tell(terminal, served, home, options.json);
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

/** The keys of the configuration that flags have set. */
function flagsOf({ host, port, behindProxy }: ServeCommandOptions): ReadonlyMap<string, string> {
  const set = new Map<string, string>();
  if (host !== undefined) set.set("gateway.host", "--host");
  if (port !== undefined) set.set("gateway.port", "--port");
  if (behindProxy === true) set.set("gateway.behindProxy", "--behind-proxy");
  return set;
}

async function tell(terminal: Terminal, served: ServedGateway, home: string, json: boolean): Promise<void> {
  const { url, previewUrl, madeOperatorKey: made } = served;
  if (json) {
    terminal.out(`${JSON.stringify({ listening: url })}\n`);
    return;
  }
  const operatorId = operatorKeyId((await readOperatorKey(home)) ?? "");
  // A revoked key opens nothing.
  if (operatorId !== null && (await served.keys.find(operatorId)) !== null) {
    terminal.out(`Dashboard, once within 15 minutes (another link: sandlot dashboard):\n\n`);
    terminal.out(`  ${served.dashboardLink(operatorId)}\n\n`);
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
