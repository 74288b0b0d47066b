/** `sandlot ps`, `rm`, `prune`, `explain` and `audit`: list sandboxes, end them, and explain their state. */

import {
  isoTime,
  isSandlotError,
  type OpenEnum,
  type SandboxSummary,
  SandlotError,
  type ThreadSummary,
} from "@sandlot/contract";
import { withProgress } from "./progress.ts";
import { printTable } from "./table.ts";
import { listSandboxes, requireThread, type TargetOptions, type Whose, withTarget } from "./target.ts";
import { printJson, type Terminal } from "./terminal.ts";

export interface ListCommandOptions extends TargetOptions, Whose {
  /** Threads, including those with files and no sandbox. */
  readonly threads?: boolean;
  /** Names only, one per line. */
  readonly quiet?: boolean;
  readonly json: boolean;
}

export async function listCommand(terminal: Terminal, options: ListCommandOptions): Promise<void> {
  const look = <T>(ask: () => Promise<T>) => withProgress(terminal, "Looking", ask);
  if (options.threads === true) {
    const threads = await look(() => withTarget(terminal, options, (target) => target.threads(options)));
    return printThreads(terminal, threads, options);
  }
  const sandboxes = await look(() => listSandboxes(terminal, options));
  if (options.json) return printJson(terminal, { sandboxes });
  if (options.quiet === true) return terminal.out(sandboxes.map(({ sandboxId }) => `${sandboxId}\n`).join(""));
  if (sandboxes.length === 0) return terminal.error("There are no sandboxes.\n");
  const { heads, rows } = sandboxTable(sandboxes, Date.now());
  printTable(terminal, heads, rows);
}

export function sandboxTable(sandboxes: readonly SandboxSummary[], now: number) {
  // A fleet with one engine needs no column for it.
  const hasEngines = new Set(sandboxes.map(({ engine }) => engine)).size > 1;
  const heads = ["SANDBOX", "USER", "THREAD", "STATE", "BLUEPRINT", "BACKEND", "AGE", "HELD BY"];
  return {
    heads: [...heads, ...(hasEngines ? ["ENGINE"] : [])],
    rows: sandboxes.map((sandbox) => [...row(sandbox, now), ...(hasEngines ? [sandbox.engine ?? "-"] : [])]),
  };
}

function printThreads(terminal: Terminal, threads: readonly ThreadSummary[], options: ListCommandOptions): void {
  if (options.json) printJson(terminal, { threads });
  else if (options.quiet === true) terminal.out(threads.map(({ thread }) => `${thread}\n`).join(""));
  else if (threads.length === 0) terminal.error("There are no threads.\n");
  else {
    const rows = threads.map(({ user, thread, sandbox }) => [
      ...[thread, user, sandbox?.state ?? "files only", sandbox?.sandboxId.slice(0, 12) ?? "-"],
    ]);
    printTable(terminal, ["THREAD", "USER", "STATE", "SANDBOX"], rows);
  }
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

export interface RemoveCommandOptions extends TargetOptions, Whose {
  readonly thread?: string;
  /** Every thread of the user instead of one. */
  readonly all?: boolean;
  readonly force?: boolean;
  readonly purge?: boolean;
  readonly json: boolean;
}

type Outcome = OpenEnum<"absent" | "stopped" | "stopping" | "in-use">;

interface Ended {
  readonly user: string;
  readonly thread: string;
  readonly outcome: Outcome;
}

/** Resolves with whether everything requested was ended. */
export async function removeCommand(
  terminal: Terminal,
  options: RemoveCommandOptions,
  signal: AbortSignal,
): Promise<boolean> {
  const { thread, user, force = false, purge = false, all = false } = options;
  if ((thread === undefined) === !all) {
    const problem = "name a thread with -t, or every thread with --all";
    throw new SandlotError("invalid_request", { field: "command line", problem });
  }
  if (thread === undefined) return removeAll(terminal, options, () => true, signal);
  const destroy = () =>
    withTarget(terminal, options, async (target) => {
      await requireThread(target, { thread, user });
      return target.destroy({ thread, user }, { force, purge }, signal);
    });
  const outcome = await withProgress(terminal, `Ending the sandbox of thread ${thread}`, destroy);
  if (options.json) printJson(terminal, { thread, outcome, purged: purge });
  else terminal.out(`${sentence(thread, outcome)}; its files are ${purge ? "removed" : "kept"}.\n`);
  return true;
}

/** `prune`: ends unused sandboxes. With `purge` the files of those threads are removed too. */
export function pruneCommand(terminal: Terminal, options: RemoveCommandOptions, signal: AbortSignal): Promise<boolean> {
  return removeAll(terminal, { ...options, force: false }, ({ sandbox }) => sandbox?.state === "parked", signal);
}

/** One after the other: the engine confirms each, and one in use is reported and left alone. */
async function removeAll(
  terminal: Terminal,
  options: RemoveCommandOptions,
  isMeant: (thread: ThreadSummary) => boolean,
  signal: AbortSignal,
): Promise<boolean> {
  const { force = false, purge = false } = options;
  const ended: Ended[] = [];
  const work = () =>
    withTarget(terminal, options, async (target) => {
      const meant = (await target.threads(options)).filter((one) => isMeant(one) && (purge || one.sandbox !== null));
      for (const { user, thread } of meant) {
        signal.throwIfAborted();
        const outcome = await target.destroy({ user, thread }, { force, purge }, signal).catch((error: unknown) => {
          if (isSandlotError(error, "sandbox_in_use")) return "in-use" as const;
          throw error;
        });
        ended.push({ user, thread, outcome });
      }
    });
  await withProgress(terminal, () => `Ending sandboxes: ${ended.length}`, work);
  const isDone = ended.every(({ outcome }) => outcome !== "in-use");
  if (options.json) {
    printJson(terminal, { ended, purged: purge });
    return isDone;
  }
  for (const { thread, outcome } of ended)
    terminal.out(
      `${sentence(thread, outcome)}${outcome === "in-use" ? "" : `; its files are ${purge ? "removed" : "kept"}`}.\n`,
    );
  if (ended.length === 0) terminal.error("There is nothing to end.\n");
  return isDone;
}

function sentence(thread: string, outcome: Outcome): string {
  const sentences: Readonly<Record<string, string>> = {
    absent: `Thread ${thread} has no sandbox`,
    stopped: `The sandbox of thread ${thread} has ended`,
    stopping: `The sandbox of thread ${thread} is being ended; the engine has not confirmed yet`,
    "in-use": `The sandbox of thread ${thread} is in use and goes on; --force ends it`,
  };
  return sentences[outcome] ?? `The sandbox of thread ${thread}: ${outcome}`;
}

export interface ConfirmDeadOptions extends TargetOptions {
  /** Its machine is off; without this the command only says what it would do. */
  readonly machineIsOff?: boolean;
  readonly json: boolean;
}

/** Resolves with whether it was done. */
export async function confirmDeadCommand(
  terminal: Terminal,
  sandbox: string,
  options: ConfirmDeadOptions,
  signal: AbortSignal,
): Promise<boolean> {
  return withTarget(terminal, options, async (target) => {
    const { sandboxId, summary } = await target.explain(sandbox);
    if (options.machineIsOff !== true) {
      terminal.error(
        `${sandboxId}: ${summary}\n` +
          "If its machine still runs, two sandboxes would write the same files. When it is off: add --machine-is-off.\n",
      );
      return false;
    }
    await withProgress(terminal, `Ending ${sandboxId}`, () => target.confirmDead(sandboxId, signal));
    if (options.json) printJson(terminal, { sandboxId, outcome: "dead" });
    else terminal.out(`${sandboxId} counts as dead; its thread may have another sandbox.\n`);
    return true;
  });
}

export interface ExplainCommandOptions extends TargetOptions, Whose {
  readonly thread?: string;
  readonly json: boolean;
}

export async function explainCommand(
  terminal: Terminal,
  sandbox: string | undefined,
  options: ExplainCommandOptions,
): Promise<void> {
  const { thread, user } = options;
  if ((sandbox === undefined) === (thread === undefined)) {
    const problem = "name a sandbox by its id, or a thread with -t";
    throw new SandlotError("invalid_request", { field: "command line", problem });
  }
  const asked = sandbox ?? { thread: thread ?? "", user };
  const explain = () => withTarget(terminal, options, (target) => target.explain(asked));
  const explanation = await withProgress(terminal, "Looking", explain);
  if (options.json) return printJson(terminal, explanation);
  terminal.out(`${explanation.summary}\n`);
  for (const { who, purpose, since } of explanation.holders)
    terminal.out(`  held by ${who} for ${purpose}, since ${isoTime(since)}\n`);
  if (explanation.ends !== null)
    terminal.out(`  ends at ${isoTime(explanation.ends.at)} (${explanation.ends.reason}) if nothing changes\n`);
  for (const event of explanation.history) terminal.out(`  ${isoTime(event.at)}  ${event.type}\n`);
}

/** Resolves with whether there are no findings. */
export async function auditCommand(terminal: Terminal, options: TargetOptions & { json: boolean }): Promise<boolean> {
  const compare = () => withTarget(terminal, options, (target) => target.audit());
  const findings = await withProgress(terminal, "Comparing engine and store", compare);
  const consistent = findings === null ? null : findings.length === 0;
  if (options.json) printJson(terminal, { consistent, findings: findings ?? [] });
  else if (findings === null) terminal.out("Engine and store could not be compared.\n");
  else if (findings.length === 0) terminal.out("Engine and store agree.\n");
  else for (const { sandboxId, problem } of findings) terminal.out(`${sandboxId ?? "-"}: ${problem}\n`);
  return consistent === true;
}
