/**
 * Entries of a timeline in words, the same on a page, in an export and on the command line. The texts are hostile still:
 * their reader escapes them.
 */

import type { TimelineEntry } from "./results/timeline.ts";

type Facts = TimelineEntry["facts"];

const WORDS: Readonly<Record<string, (facts: Facts) => string>> = {
  "lease acquired": (facts) => `leased for “${word(facts.purpose)}” (${word(facts.path)}, ${took(facts.durationMs)})`,
  "lease released": (facts) => `released by “${word(facts.purpose)}” after ${took(facts.heldMs)}`,
  "lease lost": (facts) => `“${word(facts.purpose)}” lost its lease: ${word(facts.reason)}`,
  "command started": (facts) => `${commandOf(facts)} (running)`,
  "command ended": (facts) => `${commandOf(facts)} → ${endOf(facts)} in ${took(facts.durationMs)}`,
  "files changed": (facts) =>
    `${word(facts.added)} added, ${word(facts.changed)} changed, ${word(facts.removed)} removed: ${word(facts.names)}`,
  "limit hit": (facts) => `reached its limit of ${word(facts.limit)}: ${word(facts.because)}`,
  "refused connection": (facts) => `${word(facts.host)}:${word(facts.port)} refused: ${word(facts.because)}`,
  "crash crashed": (facts) => `the sandbox died${facts.cause === null ? "" : `: ${word(facts.cause)}`}`,
  "sandbox created": (facts) => `made in ${took(facts.durationMs)}`,
  "sandbox bound": () => "a sandbox that was ready was bound to the thread",
  "sandbox attached": (facts) => `connected in ${took(facts.durationMs)}`,
  "sandbox parked": () => "parked: nothing holds it",
  "sandbox adopted": () => "found and adopted",
  "sandbox lost": (facts) => `lost: ${word(facts.reason)}`,
  "sandbox stopping": (facts) => `being stopped: ${word(facts.reason)}`,
  "sandbox stopped": (facts) => `stopped: ${word(facts.reason)}`,
  "sandbox stop-failed": (facts) => `could not be stopped (attempt ${word(facts.attempt)}): ${word(facts.problem)}`,
  "checkpoint taken": (facts) => `taken (${word(facts.cause)}) in ${took(facts.durationMs)}`,
  "checkpoint failed": (facts) => `failed: ${word(facts.problem)}`,
  "restore restore": (facts) =>
    `checkpoint ${word(facts.checkpoint)} brought back; the state before is ${word(facts.safety)}`,
  "restore undo": (facts) => `undone to ${word(facts.checkpoint)}; the state before is ${word(facts.safety)}`,
  "restore redo": (facts) => `redone to ${word(facts.checkpoint)}; the state before is ${word(facts.safety)}`,
  "restore refused": (facts) => `checkpoint ${word(facts.checkpoint)} was not brought back: ${word(facts.problem)}`,
  "fork from": (facts) => `began with the files of thread ${word(facts.thread)}`,
  "fork to": (facts) => `its files began thread ${word(facts.thread)}`,
  "preview opened": (facts) => `a link to port ${word(facts.port)} was made`,
  "upload files": (facts) => `${word(facts.count)} uploaded: ${word(facts.names)}`,
  "terminal opened": () => "a terminal was opened",
  "lost entries": (facts) =>
    `${word(facts.count)} entries are missing here: there were too many, or they could not be written`,
};

/** One line, without the time. */
export function summaryOf({ kind, what, facts }: Pick<TimelineEntry, "kind" | "what" | "facts">): string {
  return (
    WORDS[`${kind} ${what}`]?.(facts) ??
    `${what} ${Object.entries(facts)
      .map(([name, value]) => `${name}=${word(value)}`)
      .join(" ")}`
  );
}

/** The facts as texts, for a list of details. */
export function factTexts({ facts }: Pick<TimelineEntry, "facts">): readonly (readonly [name: string, text: string])[] {
  return Object.entries(facts).map(([name, value]) => [name, name.endsWith("Ms") ? took(value) : word(value)]);
}

function commandOf(facts: Facts): string {
  return facts.hidden === true ? "(a command that the shell's history leaves out)" : word(facts.command);
}

function endOf({ status, exitCode, signal, error }: Facts): string {
  if (typeof error === "string") return error;
  if (typeof exitCode === "number") return `exit ${exitCode}`;
  return typeof signal === "string" ? signal : status === "completed" ? "ended" : word(status);
}

function word(value: Facts[string] | undefined): string {
  if (typeof value === "string") return value;
  if (value === null || value === undefined) return "-";
  return typeof value === "object" ? value.join(", ") : String(value);
}

function took(value: Facts[string] | undefined): string {
  if (typeof value !== "number") return word(value);
  if (value < 1_000) return `${Math.round(value)} ms`;
  return value < 120_000 ? `${(value / 1_000).toFixed(1)} s` : `${Math.round(value / 60_000)} min`;
}
