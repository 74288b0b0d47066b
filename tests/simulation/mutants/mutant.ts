/**
 * A mutant: one planted bug, kept as a text file of its own.
 *
 *   name: stop-ignores-holders
 *   rule: 1
 *   file: packages/fleet/src/store/transactions/removal.ts
 *   why: the move to stopping does not check whether the sandbox is held
 *   --- find
 *   if (mode.kind === "unheld" && isHeld(record)) return { kind: "held", record };
 *   --- put
 *   (nothing, or what stands there instead)
 */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

export interface Mutant {
  readonly name: string;
  /** In section 3 of the design; 0: no single rule. */
  readonly rule: number;
  readonly file: string;
  readonly why: string;
  readonly find: string;
  readonly put: string;
}

export function loadMutants(): Mutant[] {
  const folder = join(import.meta.dirname, "planted");
  return readdirSync(folder)
    .filter((name) => name.endsWith(".mutant"))
    .sort()
    .map((name) => parseMutant(readFileSync(join(folder, name), "utf8"), name));
}

function parseMutant(text: string, from: string): Mutant {
  const match = /^(?<head>[\s\S]*?)^--- find\n(?<find>[\s\S]*?)\n--- put\n(?<put>[\s\S]*)$/m.exec(text);
  if (match?.groups === undefined) throw new Error(`${from}: not a mutant: it needs "--- find" and "--- put"`);
  const { head = "", find = "", put = "" } = match.groups;
  const field = (name: string): string => {
    const value = new RegExp(`^${name}: (.+)$`, "m").exec(head)?.[1];
    if (value === undefined) throw new Error(`${from}: "${name}:" is missing`);
    return value.trim();
  };
  return {
    name: field("name"),
    rule: Number(field("rule")),
    file: field("file"),
    why: field("why"),
    find,
    put: put.replace(/\n$/, ""),
  };
}
