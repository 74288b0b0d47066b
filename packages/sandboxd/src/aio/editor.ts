/** `str_replace_editor`: shows a file and changes it in small steps, the last of which can be undone. */

import { SandlotError } from "@sandlot/contract";
import { statPath } from "../files/change.ts";
import { checkPath } from "../files/paths.ts";
import { listDirectory } from "../files/search.ts";
import { writeFile } from "../files/write.ts";
import { OperationProblem } from "./answers.ts";
import type { Fields } from "./fields.ts";
import { chunks, readText } from "./file-routes.ts";

const COMMANDS = ["view", "create", "str_replace", "insert", "undo_edit"] as const;
const MODES = ["ALL", "FIRST", "LAST"] as const;
/** Contents before each edit, by path. */
const HISTORY_MAX = 32;
const history: { readonly path: string; readonly content: string | null }[] = [];
const VIEW_DEPTH = 2;
const VIEW_MAX = 1_000;

interface Edit {
  readonly output: string;
  readonly old: string | null;
  readonly content: string | null;
}

export async function edit(fields: Fields, given: string): Promise<unknown> {
  const command = fields.requiredChoice("command", COMMANDS);
  const [fileText, oldText, newText] = ["file_text", "old_str", "new_str"].map((name) => fields.optionalText(name));
  const line = fields.integer("insert_line");
  const range = fields.integers("view_range") ?? [];
  const mode = fields.choice("replace_mode", MODES);
  ignoreDocuments(fields);
  fields.check();
  const path = checkPath(given);
  const existing = await contentOf(path);
  const done = ({ output, old, content }: Edit) => ({
    ...{ output, error: null, path: given, prev_exist: existing !== null },
    ...{ old_content: old, new_content: content, metadata: null },
  });
  if (command === "view") return done({ output: await view(path, existing, range), old: null, content: null });
  if (command === "undo_edit") return done(await undo(path, existing));
  const content = changed();
  await writeFile(path, chunks(Buffer.from(content)), {});
  history.push({ path, content: existing });
  if (history.length > HISTORY_MAX) history.shift();
  return done({ output: `The file ${given} has been edited.`, old: existing, content });

  function changed(): string {
    if (command === "create") return fileText ?? "";
    if (existing === null) throw new SandlotError("file_not_found", { path });
    if (command === "insert") return inserted(existing, line, newText ?? "");
    return replaced(existing, oldText ?? null, newText ?? "", mode);
  }
}

/** Options for spreadsheets, slides and pages, which are unsupported here. */
function ignoreDocuments(fields: Fields): void {
  for (const name of ["page_range", "row_range", "slide_range"]) fields.integers(name);
  fields.ignore("string", "sheet_name");
  fields.ignore("boolean", "enable_metadata");
}

function replaced(text: string, from: string | null, to: string, mode: (typeof MODES)[number] | null): string {
  if (from === null || from === "") throw new OperationProblem("old_str is needed");
  const count = text.split(from).length - 1;
  if (count === 0) throw new OperationProblem("old_str does not occur in the file");
  if (mode === "ALL") return text.replaceAll(from, () => to);
  if (mode === null && count > 1) throw new OperationProblem(`old_str occurs ${count} times; it must be unique`);
  const at = mode === "LAST" ? text.lastIndexOf(from) : text.indexOf(from);
  return text.slice(0, at) + to + text.slice(at + from.length);
}

function inserted(text: string, line: number | null, added: string): string {
  const lines = text.split("\n");
  if (line === null || line < 0 || line > lines.length) throw new OperationProblem("insert_line is not in the file");
  return [...lines.slice(0, line), ...added.split("\n"), ...lines.slice(line)].join("\n");
}

async function undo(path: string, existing: string | null): Promise<Edit> {
  const at = history.findLastIndex((entry) => entry.path === path);
  const [last] = at < 0 ? [] : history.splice(at, 1);
  if (last === undefined) throw new OperationProblem("There is no edit to take back");
  const content = last.content ?? "";
  await writeFile(path, chunks(Buffer.from(content)), {});
  return { output: "The last edit was taken back.", old: existing, content };
}

async function view(path: string, existing: string | null, [first, last]: readonly number[]): Promise<string> {
  if (existing === null) {
    const { entries } = await listDirectory(path, VIEW_DEPTH, VIEW_MAX);
    return entries.map((entry) => entry.path).join("\n");
  }
  const lines = existing.split("\n");
  const from = first ?? 1;
  const to = last === undefined || last === -1 ? lines.length : last;
  return lines
    .slice(from - 1, to)
    .map((line, index) => `${String(from + index).padStart(6)}\t${line}`)
    .join("\n");
}

/** `null` when there is no such file, or when it is a directory. */
async function contentOf(path: string): Promise<string | null> {
  try {
    if (statPath(path).kind === "directory") return null;
    return await readText(path, null, null);
  } catch (error) {
    if (error instanceof SandlotError && error.code === "file_not_found") return null;
    throw error;
  }
}
