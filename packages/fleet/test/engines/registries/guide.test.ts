/**
 * The guide from nothing to a plot and to a private repository: its configuration and each of its commands, as printed
 * there, with an index and a forge of the names it uses. The packages of the index do only what the guide asks of them.
 */

import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { stageProblem } from "../../host/egress/stage/stage.ts";
import { inNetwork } from "./in-network.ts";

interface Outcome {
  readonly results: readonly { readonly code: number; readonly stdout: string; readonly stderr: string }[];
  readonly plot: string | null;
}

const PROGRAM = new URL("./guide-program.ts", import.meta.url);
const GUIDE = readFileSync(new URL("../../../../../docs/guides/data-science.md", import.meta.url), "utf8");
const NAMES = ["packages.corp.example", "git.corp.example"];
const problem = stageProblem("bwrap", "git", "python3");

function block(language: string): string {
  return new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``).exec(GUIDE)?.[1] ?? "";
}

/** All console blocks of the guide, in its order. */
function steps(): readonly { readonly line: string; readonly printed: string }[] {
  const blocks = [...GUIDE.matchAll(/```console\n([\s\S]*?)```/g)].map(([, text = ""]) => text);
  return blocks.flatMap((text) =>
    text
      .split(/^\$ /m)
      .filter((part) => part !== "")
      .map((part) => ({ line: part.slice(0, part.indexOf("\n")), printed: part.slice(part.indexOf("\n") + 1) })),
  );
}

/** The words of a line with single quotes, as a shell has them. */
function wordsOf(line: string): readonly string[] {
  return [...line.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? "");
}

/** Hashes, sizes and versions of Python differ from machine to machine. */
function comparable(text: string): string {
  return text
    .replace(/@[0-9a-f]{16}/g, "@<hash>")
    .replace(/\b\d+ (?:MiB|bytes)/g, "<size>")
    .replace(/python3\.\d+/g, "python3.N")
    .replace(/ +/g, " ");
}

describe.skipIf(problem !== null)(`the guide on data science (${problem ?? "in a network namespace"})`, () => {
  it("prints what it says, command by command", { timeout: 600_000 }, async () => {
    const all = steps();
    expect(all.length).toBeGreaterThan(8);
    const commands = all.map(({ line }) => wordsOf(line).slice(1));
    expect(all.every(({ line }) => line.startsWith("sandlot "))).toBe(true);
    const order = { yaml: block("yaml"), requirements: block("text"), commands };
    const { results, plot } = await inNetwork<Outcome>(PROGRAM, order, { names: NAMES });
    const shown = results.map(({ code, stdout, stderr }, index) => ({
      ...{ line: all[index]?.line, code, printed: comparable(stdout + stderr) },
    }));
    expect(shown).toEqual(all.map(({ line, printed }) => ({ line, code: 0, printed: comparable(printed) })));
    expect(plot).toBe("PNG");
  });
});
