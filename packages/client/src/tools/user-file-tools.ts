/** `present_files`, `list_uploaded_files`: files exchanged between the agent and its user. */

import { type FileStat, isoTime } from "@sandlot/contract";
import { z } from "zod";
import { TOOL_LIMITS } from "./limits.ts";
import { absolutePath, descriptionInput, isWithin, maxResultsInput } from "./paths.ts";
import { plural } from "./text.ts";
import { defineTool, ToolRefusal } from "./tool.ts";

const OUTPUTS = "/mnt/user-data/outputs";
const UPLOADS = "/mnt/user-data/uploads";
/** Documents with a text version beside them, which is no separate upload. */
const CONVERTIBLE = /\.(?:pdf|pptx?|xlsx?|docx?)$/i;
const STAGING = /^\.upload-.*\.part$/;

export const presentFilesTool = defineTool({
  name: "present_files",
  title: "Show files to the user",
  description: `Shows finished files to the user. They must be below ${OUTPUTS}.`,
  input: z.object({
    description: descriptionInput,
    filepaths: z.array(z.string().min(1)).min(1).max(100).describe("Absolute paths of the files."),
  }),
  readOnly: true,
  ownLimit: false,
  async run({ filepaths }, { run, signal }) {
    const paths = filepaths.map((path) => absolutePath(path));
    const elsewhere = paths.filter((path) => !isWithin(path, OUTPUTS));
    if (elsewhere.length > 0)
      throw new ToolRefusal(
        "not_presentable",
        `Only files below ${OUTPUTS} can be shown; copy there first: ${elsewhere.join(", ")}`,
      );
    const found = await run.use(({ files }) => Promise.all(paths.map((path) => files.stat(path))), {
      signal,
      repeatable: true,
    });
    const odd = found.filter(({ kind }) => kind !== "file").map(({ path }) => path);
    if (odd.length > 0) throw new ToolRefusal("not_presentable", `Not a file: ${odd.join(", ")}`);
    const files = found.map(({ path, sizeBytes }) => ({ path, sizeBytes }));
    const lines = files.map(({ path, sizeBytes }) => `${path} (${sizeBytes} bytes)`);
    return { text: ["Shown to the user:", ...lines].join("\n"), facts: { files } };
  },
});

export const listUploadedFilesTool = defineTool({
  name: "list_uploaded_files",
  title: "List the user's files",
  description: "Lists the files that the user has uploaded to this conversation, the newest first.",
  input: z.object({
    description: descriptionInput,
    max_results: maxResultsInput(TOOL_LIMITS.uploadsListed, TOOL_LIMITS.uploadsMaxListed),
  }),
  readOnly: true,
  ownLimit: false,
  async run({ max_results }, { run, signal }) {
    const { entries } = await run.use(({ files }) => files.list(UPLOADS), { signal, repeatable: true });
    const uploads = uploadsOf(entries);
    const max = max_results <= 0 ? TOOL_LIMITS.uploadsListed : Math.min(max_results, TOOL_LIMITS.uploadsMaxListed);
    const shown = uploads.slice(0, max);
    if (shown.length === 0) return { text: "No files have been uploaded.", facts: { files: [] } };
    const lines = shown.map(({ path, sizeBytes, modifiedAt }) =>
      [plainName(path), `${sizeBytes} bytes`, isoTime(modifiedAt)].join(" · "),
    );
    const more = uploads.length - shown.length;
    if (more > 0) lines.push(`[${plural(more, "older file")} not listed; raise max_results]`);
    return { text: lines.join("\n"), facts: { files: shown.map(({ path, sizeBytes }) => ({ path, sizeBytes })) } };
  },
});

/** Regular files, without unfinished uploads and without text versions of documents. */
function uploadsOf(entries: readonly FileStat[]): readonly FileStat[] {
  const documents = new Set(entries.filter(({ path }) => CONVERTIBLE.test(path)).map(({ path }) => stemOf(path)));
  return entries
    .filter(({ path, kind }) => kind === "file" && !STAGING.test(path.slice(path.lastIndexOf("/") + 1)))
    .filter(({ path }) => !(path.endsWith(".md") && documents.has(stemOf(path))))
    .toSorted((a, b) => b.modifiedAt - a.modifiedAt || (a.path < b.path ? -1 : 1));
}

function stemOf(path: string): string {
  return path.slice(0, path.lastIndexOf("."));
}

/** An untrusted name in a prompt: it must not look like a tag or begin a line. */
function plainName(path: string): string {
  return path.replace(/[<>]/g, "_").replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, "_");
}
