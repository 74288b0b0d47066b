/**
 * `sandlot ps` and `sandlot rm`: what there is, and ending it.
 */

import type { SandboxSummary } from "@sandlot/contract";
import { type FleetOptions, withFleet } from "./embedded-fleet.ts";
import { printTable } from "./table.ts";
import { printJson, type Terminal } from "./terminal.ts";

export async function listCommand(terminal: Terminal, options: FleetOptions & { json: boolean }): Promise<void> {
  const sandboxes = await withFleet(terminal, options, (fleet) => fleet.list());
  if (options.json) return printJson(terminal, { sandboxes });
  if (sandboxes.length === 0) return terminal.error("There are no sandboxes.\n");
  const now = Date.now();
  printTable(
    terminal,
    ["SANDBOX", "USER", "THREAD", "STATE", "BLUEPRINT", "BACKEND", "AGE", "HELD BY"],
    sandboxes.map((sandbox) => row(sandbox, now)),
  );
}

function row(sandbox: SandboxSummary, now: number): readonly string[] {
  const { sandboxId, user, thread, state, blueprint, backend, createdAt, holders } = sandbox;
  const names = [sandboxId.slice(0, 12), user ?? "-", thread ?? "-", state, blueprint, backend];
  return [...names, age(now - createdAt), holders.length === 0 ? "-" : String(holders.length)];
}

function age(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1_000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7_200) return `${Math.floor(seconds / 60)}m`;
  return seconds < 172_800 ? `${Math.floor(seconds / 3_600)}h` : `${Math.floor(seconds / 86_400)}d`;
}

export interface RemoveCommandOptions extends FleetOptions {
  readonly thread: string;
  readonly user?: string;
  readonly force?: boolean;
  readonly purge?: boolean;
  readonly json: boolean;
}

export async function removeCommand(
  terminal: Terminal,
  options: RemoveCommandOptions,
  signal: AbortSignal,
): Promise<void> {
  const { thread, user, force = false, purge = false } = options;
  const key = user === undefined ? { thread } : { thread, user };
  const outcome = await withFleet(terminal, options, (fleet) => fleet.destroy(key, { force, purge, signal }));
  if (options.json) return printJson(terminal, { thread, outcome, purged: purge });
  const said = {
    absent: `Thread ${thread} has no sandbox`,
    stopped: `The sandbox of thread ${thread} has ended`,
    stopping: `The sandbox of thread ${thread} is being ended; the engine has not confirmed yet`,
  }[outcome];
  terminal.out(`${said}; its workspace is ${purge ? "removed" : "kept"}.\n`);
}
