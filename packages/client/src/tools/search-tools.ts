/** `ls`, `glob`, `grep`: find files and lines. A result that a limit cut says so, with how to see the rest. */

import { type FileStat, type GrepMatch, type GrepResult, SANDBOX_LIMITS, type SandboxFiles } from "@sandlot/contract";
import { z } from "zod";
import { TOOL_LIMITS } from "./limits.ts";
import { absolutePath, descriptionInput, maxResultsInput, pathInput } from "./paths.ts";
import { plural } from "./text.ts";
import { defineTool } from "./tool.ts";

/** Shown as directories, not entered: they have many files, and none written by hand. */
const NOT_DESCENDED = new Set([".git", "node_modules", "__pycache__", ".venv", "venv", ".mypy_cache", ".pytest_cache"]);

export const lsTool = defineTool({
  name: "ls",
  title: "List a directory",
  description: `Lists a directory, ${TOOL_LIMITS.listDepth} levels deep. Directories end with a slash.`,
  input: z.object({ description: descriptionInput, path: pathInput("The directory.") }),
  readOnly: true,
  ownLimit: false,
  async run(input, { run, signal, workingDirectory, listMaxEntries: max }) {
    const path = absolutePath(input.path, workingDirectory);
    const { entries, truncated, depth } = await run.use(({ files }) => entriesBelow(files, path, max), {
      signal,
      repeatable: true,
    });
    const shown = entries.filter((entry) => !isHidden(entry, path));
    const lines = shown.map(({ path: entry, kind }) => (kind === "directory" ? `${entry}/` : entry));
    if (truncated)
      lines.push(`[only the first ${max} entries; find others with glob, or list a directory further down]`);
    else if (depth < TOOL_LIMITS.listDepth)
      lines.push(
        `[there are more than ${max} entries further down, so only the first level is shown; list a directory of it]`,
      );
    return {
      text: lines.length === 0 ? "(empty)" : lines.join("\n"),
      facts: { paths: shown.map((e) => e.path), truncated },
    };
  },
});

/** If two levels are too many entries, one is shown: a directory full of packages must not hide its neighbours. */
async function entriesBelow(files: SandboxFiles, path: string, maxResults: number) {
  const { listDepth } = TOOL_LIMITS;
  const deep = await files.list(path, { depth: listDepth, maxResults });
  if (!deep.truncated) return { ...deep, depth: listDepth };
  return { ...(await files.list(path, { depth: 1, maxResults })), depth: 1 };
}

/** Inside a directory that is not entered, relative to the listing's root. */
function isHidden({ path }: FileStat, root: string): boolean {
  const inner = path.slice(root === "/" ? 1 : root.length + 1).split("/");
  return inner.slice(0, -1).some((part) => NOT_DESCENDED.has(part));
}

export const globTool = defineTool({
  name: "glob",
  title: "Find files",
  description: "Finds files by a pattern: `*` within a name, `**` across directories, `?`, `[abc]`, `{a,b}`.",
  input: z.object({
    description: descriptionInput,
    pattern: z.string().min(1).describe("For example `**/*.py`."),
    path: pathInput("Where to begin."),
    include_dirs: z.boolean().default(false).describe("Whether directories are found too."),
    max_results: maxResultsInput(TOOL_LIMITS.globResults, TOOL_LIMITS.globMaxResults),
  }),
  readOnly: true,
  ownLimit: false,
  async run({ pattern, path: where, include_dirs, max_results }, { run, signal, workingDirectory }) {
    const path = absolutePath(where, workingDirectory);
    const maxResults = clamp(max_results, TOOL_LIMITS.globResults, TOOL_LIMITS.globMaxResults);
    const { paths, truncated } = await run.use(
      (sandbox) => sandbox.files.glob(path, pattern, { includeDirectories: include_dirs, maxResults }),
      { signal, repeatable: true },
    );
    if (paths.length === 0) return { text: `No files matched under ${path}`, facts: { paths, truncated } };
    const head = `Found ${plural(paths.length, "path")} under ${path}${truncated ? ` (showing first ${paths.length})` : ""}`;
    const lines = paths.map((found, index) => `${index + 1}. ${found}`);
    if (truncated) lines.push("[there are more; use a narrower pattern or path]");
    return { text: [head, ...lines].join("\n"), facts: { paths, truncated } };
  },
});

export const grepTool = defineTool({
  name: "grep",
  title: "Find lines",
  description:
    "Finds lines in files below a path: by a regular expression as ripgrep and Python read it, or literally. Ignores case unless told otherwise.",
  input: z.object({
    description: descriptionInput,
    pattern: z.string().min(1),
    path: pathInput("A directory or a file."),
    glob: z.string().optional().describe("Only files whose path matches, for example `**/*.ts`."),
    literal: z.boolean().default(false).describe("The pattern is a text, not a regular expression."),
    case_sensitive: z.boolean().default(false),
    max_results: maxResultsInput(TOOL_LIMITS.grepResults, TOOL_LIMITS.grepMaxResults),
  }),
  readOnly: true,
  ownLimit: false,
  async run(input, { run, signal, redact, hasSecrets, workingDirectory }) {
    const path = absolutePath(input.path, workingDirectory);
    const options = {
      literal: input.literal,
      caseSensitive: input.case_sensitive,
      maxResults: clamp(input.max_results, TOOL_LIMITS.grepResults, TOOL_LIMITS.grepMaxResults),
      ...(input.glob === undefined ? {} : { glob: input.glob }),
    };
    const { matches, ...told } = await run.use(
      async ({ files }) => {
        const result = await files.grep(path, input.pattern, options);
        if (!hasSecrets) return result;
        return { ...result, matches: await Promise.all(result.matches.map((match) => recut(files, match, redact))) };
      },
      { signal, repeatable: true },
    );
    const facts = { matches, ...told };
    const skipped = notSearched(told);
    if (matches.length === 0) return { text: [`No matches found under ${path}`, ...skipped].join("\n"), facts };
    const shown = told.truncated ? ` (showing first ${matches.length})` : "";
    const head = `Found ${plural(matches.length, "match")} under ${path}${shown}`;
    const lines = matches.map((match) => `${match.path}:${match.lineNumber}: ${match.line}`);
    if (told.truncated) lines.push("[there are more; use a narrower pattern, path or glob]");
    return { text: [head, ...lines, ...skipped].join("\n"), facts };
  },
});

/** A cut line may end with the unrecognisable beginning of a secret: it is redacted whole, then cut. */
async function recut(files: SandboxFiles, match: GrepMatch, redact: (text: string) => string): Promise<GrepMatch> {
  const max = SANDBOX_LIMITS.grepReportMaxChars;
  const { path, lineNumber, line } = match;
  if (line.length < max || !line.endsWith("...")) return match;
  const text = await files.readText(path, { startLine: lineNumber, endLine: lineNumber, lossy: true });
  const whole = text.replace(/\r?\n$/, "");
  const hidden = redact(whole);
  return hidden === whole ? match : { ...match, line: `${hidden.slice(0, max)}...` };
}

/** Skipped files may contain matches. */
function notSearched({ skippedFiles, skippedLines }: Omit<GrepResult, "matches">): readonly string[] {
  const { grepFileMaxBytes, grepLineMaxChars } = SANDBOX_LIMITS;
  const parts = [
    ...(skippedFiles > 0 ? [`${plural(skippedFiles, "file")} over ${grepFileMaxBytes} bytes`] : []),
    ...(skippedLines > 0 ? [`${plural(skippedLines, "line")} over ${grepLineMaxChars} characters`] : []),
  ];
  return parts.length === 0 ? [] : [`[not searched: ${parts.join(", ")}; use \`grep\` in bash]`];
}

function clamp(wanted: number, standard: number, max: number): number {
  return wanted <= 0 ? standard : Math.min(wanted, max);
}
