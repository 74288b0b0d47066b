/** `sandlot events`: the fleet's events, one per line, until interrupted. With `--json`, a line of JSON. */

import { type FleetEvent, isoTime } from "@sandlot/contract";
import { findGateway, type TargetOptions, withTarget } from "./target.ts";
import { printable, printJson, type Terminal } from "./terminal.ts";

/** Shown elsewhere in the line, or not useful. */
const SHOWN_ELSEWHERE = new Set(["type", "at", "user", "thread", "sandboxId", "instance", "generation"]);

export async function eventsCommand(
  terminal: Terminal,
  options: TargetOptions & { readonly json: boolean },
  signal: AbortSignal,
): Promise<void> {
  const { gateway } = await findGateway(terminal, options);
  if (gateway === null)
    terminal.error("No gateway is named: these are the events of this process alone (see `sandlot serve`).\n");
  await withTarget(terminal, options, async (target) => {
    try {
      const onPartial = (instances: readonly string[]) => tellPartial(terminal, instances, options.json);
      for await (const event of target.events(signal, onPartial)) print(terminal, event, options.json);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  });
}

function print(terminal: Terminal, event: FleetEvent | null, json: boolean): void {
  if (json) printJson(terminal, event ?? { type: "gap" }, 0);
  else if (event === null) terminal.error("[some events were missed]\n");
  else terminal.out(`${printable(line(event))}\n`);
}

function tellPartial(terminal: Terminal, instances: readonly string[], json: boolean): void {
  if (json) terminal.out(`${JSON.stringify({ type: "partial", instances })}\n`);
  else if (instances.length === 0) terminal.error("[events of all instances come]\n");
  else terminal.error(printable(`[no events of ${instances.join(", ")}, which this gateway does not reach]\n`));
}

function line(event: FleetEvent): string {
  const { at, type, ...facts } = event;
  const about =
    "sandboxId" in event ? `${event.user ?? "-"}/${event.thread ?? "-"} ${event.sandboxId.slice(0, 12)}` : "";
  const rest = Object.entries(facts)
    .filter(([name, value]) => !SHOWN_ELSEWHERE.has(name) && value !== null)
    .map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`);
  return [isoTime(at), type, about, ...rest].filter((part) => part !== "").join("  ");
}
