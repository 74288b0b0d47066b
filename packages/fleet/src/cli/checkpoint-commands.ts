/** `checkpoint ls|take|rm|verify|export`, `diff`, `restore`, `undo`, `redo` and `fork`. */

import { createWriteStream } from "node:fs";
import { rm } from "node:fs/promises";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { type Checkpoint, type CheckpointDiff, isoTime, SandlotError } from "@sandlot/contract";
import type { CheckpointProgress } from "../fleet.ts";
import { showSize } from "../world/units.ts";
import type { Long, RestoreWish, TargetCheckpoints } from "./checkpoint-target.ts";
import { withProgress } from "./progress.ts";
import { printTable } from "./table.ts";
import { requireThread, type Target, type TargetOptions, type ThreadName, type Whose, withTarget } from "./target.ts";
import { ID_SHOWN, printable, printJson, type Terminal } from "./terminal.ts";

export interface CheckpointCommandOptions extends TargetOptions, Whose {
  readonly thread?: string;
  readonly json: boolean;
}

export async function listCheckpointsCommand(
  terminal: Terminal,
  options: CheckpointCommandOptions,
  signal: AbortSignal,
): Promise<void> {
  const checkpoints = await asked(terminal, options, "Looking", signal, (of, name) => of.list(name));
  if (options.json) return printJson(terminal, { checkpoints });
  if (checkpoints.length === 0) return terminal.error(`Thread ${options.thread} has no checkpoints.\n`);
  const rows = checkpoints.map((one) => [
    ...[`${one.isHead ? "*" : " "} ${one.id.slice(0, ID_SHOWN)}`, isoTime(one.takenAt), one.cause],
    ...[String(one.fileCount), showSize(one.sizeBytes), showSize(one.addedBytes), labelOf(one)],
  ]);
  printTable(terminal, ["  CHECKPOINT", "TAKEN", "CAUSE", "FILES", "SIZE", "ADDED", "LABEL"], rows);
}

function labelOf({ label, restoredFrom, torn }: Checkpoint): string {
  const parts = [label ?? "", restoredFrom === null ? "" : `from ${restoredFrom.slice(0, ID_SHOWN)}`];
  return [...parts, torn.count === 0 ? "" : `${torn.count} torn`].filter((part) => part !== "").join(", ");
}

export async function takeCheckpointCommand(
  terminal: Terminal,
  {
    label,
    quiesce,
    verify,
    ...options
  }: CheckpointCommandOptions & { readonly label?: string; readonly quiesce?: boolean; readonly verify?: boolean },
  signal: AbortSignal,
): Promise<void> {
  const how = { ...(label !== undefined && { label }), ...(quiesce && { quiesce }), ...(verify && { verify }) };
  const taken = await asked(terminal, options, "Taking a checkpoint", signal, (of, name, call) =>
    of.take(name, how, call),
  );
  if (options.json) return printJson(terminal, taken);
  const { id, torn } = taken.checkpoint;
  terminal.out(`${id}\n`);
  if (!taken.isNew) terminal.error("Nothing has changed since this checkpoint, so none was written.\n");
  if (torn.count > 0)
    terminal.error(`${torn.count} files changed each time they were read: their content is a mixture.\n`);
}

export async function removeCheckpointCommand(
  terminal: Terminal,
  checkpoint: string,
  options: CheckpointCommandOptions,
  signal: AbortSignal,
): Promise<void> {
  await asked(terminal, options, "Removing the checkpoint", signal, (of, name) => of.remove(name, checkpoint));
  if (options.json) printJson(terminal, { removed: checkpoint });
  else terminal.out(`Checkpoint ${checkpoint} is removed.\n`);
}

/** False when something is damaged. */
export async function verifyCheckpointsCommand(
  terminal: Terminal,
  checkpoint: string | undefined,
  options: CheckpointCommandOptions,
  signal: AbortSignal,
): Promise<boolean> {
  const found = await asked(terminal, options, "Reading checkpoints", signal, (of, name, call) =>
    of.verify(name, checkpoint, call),
  );
  if (options.json) printJson(terminal, found);
  else {
    for (const { checkpoint: id, path } of found.damaged) terminal.out(`${id.slice(0, ID_SHOWN)} ${printable(path)}\n`);
    terminal.error(`${found.checked} checkpoints read, ${found.damaged.length} files damaged.\n`);
  }
  return found.damaged.length === 0;
}

/** To a file that appears only when it is complete, or to standard output. */
export async function exportCheckpointCommand(
  terminal: Terminal,
  checkpoint: string,
  { output, ...options }: CheckpointCommandOptions & { readonly output?: string },
  signal: AbortSignal,
): Promise<void> {
  const { thread, user } = options;
  const name = nameOf(thread, user);
  let bytes = 0;
  const counted = async function* (archive: AsyncIterable<Uint8Array>) {
    for await (const piece of archive) {
      bytes += piece.length;
      yield piece;
    }
  };
  const label = () => `Exporting: ${showSize(bytes)}`;
  const write = async ({ checkpoints }: Pick<Target, "checkpoints">) => {
    const archive = counted(checkpoints.export(name, checkpoint, signal));
    if (output === undefined || output === "-") {
      for await (const piece of archive) await terminal.write("stdout", Buffer.from(piece));
      return;
    }
    try {
      // An existing file stays as it is.
      await pipeline(Readable.from(archive), createWriteStream(output, { flags: "wx", mode: 0o600 }), { signal });
    } catch (error) {
      if ((error as { code?: unknown }).code !== "EEXIST") await rm(output, { force: true });
      throw error;
    }
    if (options.json) printJson(terminal, { thread, checkpoint, output });
  };
  await withProgress(terminal, label, () => withTarget(terminal, options, write));
}

export interface DiffCommandOptions extends CheckpointCommandOptions {
  readonly stat?: boolean;
  readonly path?: readonly string[];
}

export async function diffCommand(
  terminal: Terminal,
  from: string | undefined,
  to: string | undefined,
  { stat = false, path, ...options }: DiffCommandOptions,
  signal: AbortSignal,
): Promise<void> {
  const range = { ...(from !== undefined && { from }), ...(to !== undefined && { to }) };
  const how = { ...range, texts: !stat, ...(path !== undefined && { paths: path }) };
  const diff = await asked(terminal, options, "Comparing", signal, (of, name, call) => of.diff(name, how, call));
  if (options.json) return printJson(terminal, diff);
  for (const change of diff.changes) printChange(terminal, change);
  const { added, changed, removed } = diff.counts;
  const more = diff.truncated ? "; not all of them are shown" : "";
  terminal.error(`${added} added, ${changed} changed, ${removed} removed${more}.\n`);
}

const SIGNS: Readonly<Record<string, string>> = { added: "A", changed: "M", removed: "D", mode: "P", kind: "T" };

function printChange(
  terminal: Terminal,
  { change, path, before, after, diff, isTorn }: CheckpointDiff["changes"][number],
) {
  const modes = change === "mode" ? ` ${octal(before?.mode)} → ${octal(after?.mode)}` : "";
  terminal.out(`${SIGNS[change] ?? "?"} ${printable(path)}${modes}${isTorn ? " (torn)" : ""}\n`);
  // Bytes of a sandbox: control characters would be obeyed by the terminal.
  if (diff !== null && diff !== "")
    terminal.out(
      diff
        .split("\n")
        .map((line) => line.split("\t").map(printable).join("\t"))
        .join("\n"),
    );
}

function octal(mode: number | undefined): string {
  return mode === undefined ? "-" : (mode & 0o777).toString(8);
}

export async function restoreCommand(
  terminal: Terminal,
  wish: RestoreWish,
  options: CheckpointCommandOptions,
  signal: AbortSignal,
): Promise<void> {
  const restored = await asked(terminal, options, "Restoring", signal, (of, name, call) =>
    of.restore(name, wish, call),
  );
  if (options.json) return printJson(terminal, restored);
  const { checkpoint, safety } = restored;
  const target = (checkpoint.restoredFrom ?? checkpoint.id).slice(0, ID_SHOWN);
  terminal.out(`Thread ${options.thread} has the files of checkpoint ${target} again.\n`);
  terminal.error(
    `What was there before is checkpoint ${safety.id.slice(0, ID_SHOWN)}. The sandbox has ended; the next use starts one.\n`,
  );
}

export async function forkCommand(
  terminal: Terminal,
  to: string,
  { checkpoint, ...options }: CheckpointCommandOptions & { readonly checkpoint?: string },
  signal: AbortSignal,
): Promise<void> {
  const made = await asked(terminal, options, "Copying", signal, (of, name, call) =>
    of.fork(name, to, checkpoint, call),
  );
  if (options.json) return printJson(terminal, { ...made, thread: to });
  terminal.out(`Thread ${to} has ${made.fileCount} files (${showSize(made.sizeBytes)}) of thread ${options.thread}.\n`);
  for (const path of made.skipped) terminal.error(`left out: ${printable(path)}\n`);
}

/** Asks the target, with a line of progress, about a thread that exists. */
function asked<T>(
  terminal: Terminal,
  options: CheckpointCommandOptions,
  label: string,
  signal: AbortSignal,
  ask: (checkpoints: TargetCheckpoints, name: ThreadName, call: Long) => Promise<T>,
): Promise<T> {
  const name = nameOf(options.thread, options.user);
  let progress: CheckpointProgress | null = null;
  const onProgress = (told: CheckpointProgress) => {
    progress = told;
  };
  return withProgress(
    terminal,
    () => `${label}${progress === null ? "" : `: ${shown(progress)}`}`,
    () =>
      withTarget(terminal, options, async (target) => {
        await requireThread(target, name);
        return ask(target.checkpoints, name, { signal, onProgress });
      }),
  );
}

function shown({ phase, files, totalFiles, bytes }: CheckpointProgress): string {
  return `${phase}, ${files}${totalFiles === null ? "" : ` of ${totalFiles}`} files, ${showSize(bytes)}`;
}

function nameOf(thread: string | undefined, user: string | undefined): ThreadName {
  if (thread !== undefined) return { thread, user };
  throw new SandlotError("invalid_request", { field: "command line", problem: "name a thread with -t" });
}
