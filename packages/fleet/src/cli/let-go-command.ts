/** `sandlot kubernetes let-go`: ends what a removed installation has left. */

import { SandlotError } from "@sandlot/contract";
import { backendEntry, REGISTRY, sectionOf } from "../config/registry.ts";
import { resolveSettings } from "../config/resolve-settings.ts";
import { systemWorld } from "../world/system-world.ts";
import { loadSettings } from "./load-settings.ts";
import { withProgress } from "./progress.ts";
import type { TargetOptions } from "./target.ts";
import { printJson, type Terminal } from "./terminal.ts";

export interface LetGoOptions extends Pick<TargetOptions, "config"> {
  readonly machinesAreOff?: boolean;
  readonly json: boolean;
}

/** Resolves with whether nothing is left. */
export async function letGoCommand(terminal: Terminal, options: LetGoOptions, signal: AbortSignal): Promise<boolean> {
  const { config, machinesAreOff = false, json } = options;
  const settings = resolveSettings((await loadSettings(config, terminal.environment)).config, terminal.environment);
  const entry = backendEntry(REGISTRY, settings.backend);
  const { letGo } = entry;
  if (letGo === undefined)
    throw new SandlotError("invalid_request", {
      field: "backend",
      problem: `the configuration names ${settings.backend}, whose sandboxes hold on to nothing`,
    });
  const context = { fleet: settings, section: sectionOf(settings, entry), world: systemWorld() };
  const { ended, left } = await withProgress(terminal, "Ending sandboxes", () =>
    letGo.call(entry, { ...context, machinesAreOff }, signal),
  );
  if (json) printJson(terminal, { ended, left });
  else {
    terminal.out(`${ended} ${ended === 1 ? "sandbox has" : "sandboxes have"} ended.\n`);
    for (const { name, because } of left) terminal.error(`${name} is left: ${because}\n`);
  }
  return left.length === 0;
}
