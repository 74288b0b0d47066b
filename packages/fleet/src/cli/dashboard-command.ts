/**
 * `sandlot dashboard`: prints a link that opens the dashboard of a gateway once, and opens it in a browser where there
 * is a desktop. It asks the named gateway with its key; without one a gateway of this home with the operator's key.
 */

import { spawn } from "node:child_process";
import { SandlotError } from "@sandlot/contract";
import { homeOf } from "../config/home.ts";
import { loadSettings } from "./load-settings.ts";
import { gatewayAccess, namedGateway, type TargetOptions } from "./target.ts";
import { printJson, type Terminal } from "./terminal.ts";

export interface DashboardCommandOptions extends TargetOptions {
  /** Whether a browser may be opened. */
  readonly open: boolean;
  readonly json: boolean;
}

export async function dashboardCommand(terminal: Terminal, options: DashboardCommandOptions): Promise<void> {
  const access = await gatewayAccess(terminal, { ...options, url: await urlOf(terminal, options) });
  if (access === null) throw noGateway();
  const { DashboardClient } = await import("@sandlot/client");
  const { path, expiresAt } = await new DashboardClient(access).createLink();
  const url = `${access.url.replace(/\/+$/, "")}${path}`;
  if (options.json) return printJson(terminal, { url, expiresAt });
  terminal.out(`${url}\n`);
  terminal.error("It works once, within 15 minutes.\n");
  if (options.open) openBrowser(terminal, url);
}

/** The named gateway, or the one of this home that runs. */
async function urlOf(terminal: Terminal, options: TargetOptions): Promise<string> {
  const named = await namedGateway(terminal, options);
  if (named !== null) return named.url;
  const { config } = await loadSettings(options.config, terminal.environment);
  const { ownAddresses } = await import("../gateway/keys/own-gateways.ts");
  const { systemWorld } = await import("../world/system-world.ts");
  const [own] = await ownAddresses(homeOf(config.home, terminal.environment), systemWorld());
  if (own === undefined) throw noGateway();
  return own;
}

function noGateway(): SandlotError {
  const problem = "no gateway of this home runs: start one with `sandlot serve`, or name one with --url";
  return new SandlotError("invalid_request", { field: "url", problem });
}

/** Only from a terminal on a desktop. Whether a browser came is seen there; the link was printed either way. */
function openBrowser({ stdin, environment }: Terminal, url: string): void {
  const isMac = process.platform === "darwin";
  const hasDesktop = isMac || Boolean(environment.DISPLAY) || Boolean(environment.WAYLAND_DISPLAY);
  if (!stdin.isTTY || !hasDesktop) return;
  const browser = spawn(isMac ? "open" : "xdg-open", [url], { stdio: "ignore", detached: true });
  browser.on("error", () => undefined);
  browser.unref();
}
