/**
 * `sandlot ps`, `rm`, `explain` and `audit`: what there is, ending it, and why things are as they are.
 */

import { type SandboxSummary, SandlotError } from "@sandlot/contract";
import { withProgress } from "./progress.ts";
import { printTable } from "./table.ts";
import { type TargetOptions, withTarget } from "./target.ts";
import { printJson, type Terminal } from "./terminal.ts";

export async function listCommand(terminal: Terminal, options: TargetOptions & { json: boolean }): Promise<void> {
  const sandboxes = await withProgress(
    terminal,
    "Looking",
    () => withTarget(terminal, options, (target) => target.list()),
    options,
  );
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

export interface RemoveCommandOptions extends TargetOptions {
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
  const destroy = () =>
    withTarget(terminal, options, (target) => target.destroy({ thread, user }, { force, purge }, signal));
  const outcome = await withProgress(terminal, `Ending the sandbox of thread ${thread}`, destroy, options);
  if (options.json) return printJson(terminal, { thread, outcome, purged: purge });
  const said = {
    absent: `Thread ${thread} has no sandbox`,
    stopped: `The sandbox of thread ${thread} has ended`,
    stopping: `The sandbox of thread ${thread} is being ended; the engine has not confirmed yet`,
  }[outcome];
  terminal.out(`${said}; its workspace is ${purge ? "removed" : "kept"}.\n`);
}

export async function explainCommand(
  terminal: Terminal,
  sandbox: string,
  options: TargetOptions & { json: boolean },
): Promise<void> {
  const explain = () =>
    withTarget(terminal, options, async (target) => {
      const known = (await target.list()).map(({ sandboxId }) => sandboxId);
      // What `ps` shows is the beginning of an id.
      const [first = sandbox, ...others] = known.filter((id) => id.startsWith(sandbox));
      if (others.length === 0 || first === sandbox) return target.explain(first);
      const problem = `${sandbox} is the beginning of ${[first, ...others].join(", ")}`;
      throw new SandlotError("invalid_request", { field: "sandbox", problem });
    });
  const explanation = await withProgress(terminal, "Looking", explain, options);
  if (options.json) return printJson(terminal, explanation);
  terminal.out(`${explanation.summary}\n`);
  for (const { who, purpose, since } of explanation.holders)
    terminal.out(`  held by ${who} for ${purpose}, since ${new Date(since).toISOString()}\n`);
  if (explanation.ends !== null)
    terminal.out(
      `  ends at ${new Date(explanation.ends.at).toISOString()} (${explanation.ends.reason}) if nothing changes\n`,
    );
  for (const event of explanation.history) terminal.out(`  ${new Date(event.at).toISOString()}  ${event.type}\n`);
}

/** Resolves with whether everything fits together. */
export async function auditCommand(terminal: Terminal, options: TargetOptions & { json: boolean }): Promise<boolean> {
  const compare = () => withTarget(terminal, options, (target) => target.audit());
  const findings = await withProgress(terminal, "Comparing engine and store", compare, options);
  const consistent = findings === null ? null : findings.length === 0;
  if (options.json) printJson(terminal, { consistent, findings: findings ?? [] });
  else if (findings === null) terminal.out("Engine and store could not be compared.\n");
  else if (findings.length === 0) terminal.out("Engine and store agree.\n");
  else for (const { sandboxId, problem } of findings) terminal.out(`${sandboxId ?? "-"}: ${problem}\n`);
  return consistent === true;
}
