/**
 * The documents' text, read as data: links, code blocks, tables; and the commands, invariants and mutants that they may
 * name.
 */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

export const ROOT = join(import.meta.dirname, "..", "..", "..", "..");

export function read(path: string): string {
  return readFileSync(join(ROOT, path), "utf8");
}

/** Every handwritten document: at the root, in `docs`, and beside each package. */
export function documentPaths(): string[] {
  const below = (folder: string) =>
    readdirSync(join(ROOT, folder))
      .filter((name) => name.endsWith(".md"))
      .map((name) => join(folder, name));
  const packages = readdirSync(join(ROOT, "packages")).map((name) => join("packages", name, "README.md"));
  return [
    ...below("."),
    ...below("docs"),
    ...below("docs/backends"),
    ...below("docs/decisions"),
    ...below("docs/guides"),
    ...packages.filter(isThere),
  ];
}

export function isThere(path: string): boolean {
  return existsSync(join(ROOT, path));
}

/** The targets of a document's relative links, as paths below the repository. Code is skipped. */
export function linkTargets(path: string): string[] {
  const prose = read(path)
    .replace(/^```[\s\S]*?^```/gm, "")
    .replace(/`[^`\n]*`/g, "");
  return [...prose.matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, target = ""]) => target)
    .filter((target) => !/^(https?:|mailto:|#)/.test(target))
    .map((target) => join(dirname(path), target.replace(/#.*$/, "")));
}

/** The code blocks of one language, in their order. */
export function codeBlocks(path: string, language: string): string[] {
  const fence = new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\`$`, "gm");
  return [...read(path).matchAll(fence)].map(([, code = ""]) => code);
}

/** The cells of a table's rows, without header and rule. */
export function tableRows(text: string): string[][] {
  const lines = text.split("\n").filter((line) => line.startsWith("|"));
  return lines
    .filter((line, index) => !/^\|[\s:|-]+\|$/.test(line) && !/^\|[\s:|-]+\|$/.test(lines[index + 1] ?? ""))
    .map((line) =>
      line
        .slice(1, line.lastIndexOf("|"))
        .split("|")
        .map((cell) => cell.trim()),
    );
}

/** `null`: the command exists, and prints the named result. Otherwise the missing part. */
export function problemOfCommand(command: string, title: string | null): string | null {
  const [, verb, first = ""] = command.split(" ");
  const script = verb === "run" ? first : (verb ?? "");
  const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };
  if (!Object.hasOwn(scripts, script)) return `${command}: no such script`;
  const step = /--only (\S+)$/.exec(command)?.[1];
  if (step !== undefined && !read("scripts/test.mjs").includes(`name: "${step}"`)) return `${command}: no such step`;
  if (title === null) return null;
  const printed: Readonly<Record<string, () => string[]>> = {
    sim: () => simulationInvariants().map(({ name }) => name),
    bench: benchmarkResults,
  };
  return printed[script]?.().includes(title) ? null : `${command}: prints no ${title}`;
}

/** The invariants of the simulation, each with the rule that it belongs to. */
export function simulationInvariants(): { readonly name: string; readonly rule: number }[] {
  const source = read("tests/simulation/checks/invariants.ts");
  return [...source.matchAll(/^ {2}"([a-z-]+)": \[\s*(\d+),/gm)].map(([, name = "", rule]) => ({
    name,
    rule: Number(rule),
  }));
}

function benchmarkResults(): string[] {
  const folder = "bench/suites";
  const names = readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" });
  const sources = names.filter((name) => name.endsWith(".ts")).map((name) => read(join(folder, name)));
  return sources.flatMap((source) => [...source.matchAll(/name: "([a-z0-9-]+)"/g)].map(([, name = ""]) => name));
}

/** The bugs that `npm run sim:mutants` plants, each with the rule it breaks. */
export function plantedMutants(): ReadonlyMap<string, number> {
  const folder = "tests/simulation/mutants/planted";
  const files = readdirSync(join(ROOT, folder)).filter((name) => name.endsWith(".mutant"));
  return new Map(
    files.map((name) => {
      const rule = /^rule: (\d+)$/m.exec(read(join(folder, name)))?.[1];
      return [name.slice(0, -".mutant".length), Number(rule)];
    }),
  );
}
