/**
 * Faults of an engine, from `npm run chaos` on Docker: local sandboxes have no engine that could be restarted or cut off.
 * Chaos counts the time from the engine's return until every caller was served, and fails on anything that was lost.
 */

import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { FaultKind } from "../fault.ts";

const MAIN = fileURLToPath(new URL("../../chaos/main.ts", import.meta.url));

export interface EngineFigures {
  readonly kind: FaultKind;
  readonly how: string;
  readonly lost: string;
  readonly medianMs: number;
  readonly worstMs: number;
  readonly runs: number;
}

const MEASURED: readonly (Pick<EngineFigures, "kind" | "how" | "lost"> & { readonly chaos: string })[] = [
  {
    kind: "gateway cut off from the engine",
    chaos: "the engine stopped for a while",
    how: "docker: SIGSTOP to the engine for 6 s, counted from SIGCONT; held sandboxes answer meanwhile, and chaos checks that",
    lost: "nothing",
  },
  {
    kind: "engine restarted",
    chaos: "the engine restarted",
    how: "docker: SIGTERM to the engine, started again after 1.5 s, counted from its start; the engine ends its containers",
    lost: "processes of all sandboxes",
  },
];

/** Runs chaos. Empty where there is no engine. */
export async function engineFigures(): Promise<readonly EngineFigures[]> {
  const child = spawn(
    process.execPath,
    ["--conditions=sandlot-source", MAIN, "--backend", "docker", "--only", "engine", "--runs", "1"],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  let text = "";
  for await (const part of child.stdout) text += String(part);
  console.log(text);
  return figuresOf(text);
}

/** From what chaos prints: one line for each fault. */
export function figuresOf(text: string): readonly EngineFigures[] {
  return MEASURED.flatMap(({ chaos, ...fault }) => {
    const lines = text.matchAll(new RegExp(`^${chaos}: usable after (\\d+) ms`, "gm"));
    const times = [...lines].map(([, ms]) => Number(ms)).sort((one, other) => one - other);
    if (times.length === 0) return [];
    const medianMs = times[Math.floor((times.length - 1) / 2)] ?? 0;
    return { ...fault, runs: times.length, medianMs, worstMs: times.at(-1) ?? 0 };
  });
}
