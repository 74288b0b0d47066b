/** `write_file`, `str_replace`: change files, one writer of a path at a time, never over unseen content. */

import { type Sandbox, SandlotError, type WriteOptions } from "@sandlot/contract";
import { z } from "zod";
import { TOOL_LIMITS } from "./limits.ts";
import { absolutePath, descriptionInput, pathInput } from "./paths.ts";
import { decodeText, isMissing } from "./read-tool.ts";
import { defineTool, type ToolContext, ToolRefusal } from "./tool.ts";

export const writeFileTool = defineTool({
  name: "write_file",
  title: "Write a file",
  description:
    "Writes a text file, making directories on the way. An existing file must have been read with read_file before it is overwritten; " +
    "`append` adds to the end and needs no reading.",
  input: z.object({
    description: descriptionInput,
    path: pathInput("The file."),
    content: z.string(),
    append: z.boolean().default(false).describe("Add to the end instead of replacing what is there."),
  }),
  readOnly: false,
  ownLimit: false,
  async run({ path: where, content, append }, context) {
    const path = absolutePath(where, context.workingDirectory);
    const bytes = new TextEncoder().encode(content);
    if (!append) checkSize(bytes.length);
    await context.marks.turn(path, () => (append ? appendTo(path, bytes, context) : overwrite(path, bytes, context)));
    return { text: "OK", facts: { path, sizeBytes: bytes.length } };
  },
});

export const strReplaceTool = defineTool({
  name: "str_replace",
  title: "Edit a file",
  description:
    "Replaces a text in a file that you have read. The text must occur exactly once, unless replace_all is set; include enough of its surroundings.",
  input: z.object({
    description: descriptionInput,
    path: pathInput("The file."),
    old_str: z.string().describe("The text to replace, exactly as it is in the file, indentation included."),
    new_str: z.string().describe("What to put in its place."),
    replace_all: z.boolean().default(false).describe("Replace every occurrence."),
  }),
  readOnly: false,
  ownLimit: false,
  async run({ path: where, old_str, new_str, replace_all }, context) {
    const path = absolutePath(where, context.workingDirectory);
    if (old_str === "") throw new ToolRefusal("no_match", "old_str is empty. To add text, replace a text next to it.");
    const replaced = await context.marks.turn(path, async () => {
      const { bytes, version } = await present(path, context);
      await context.marks.check(path, bytes);
      const text = decodeText(path, bytes);
      const places = occurrences(text, old_str);
      if (places.length === 0)
        throw new ToolRefusal("no_match", `String to replace not found in file: ${path}. It must match exactly.`);
      if (places.length > 1 && !replace_all) throw ambiguous(path, text, places);
      const next = new TextEncoder().encode(text.split(old_str).join(new_str));
      await write(path, next, version, context);
      return places.length;
    });
    return { text: replaced === 1 ? "OK" : `OK, ${replaced} occurrences replaced`, facts: { path, replaced } };
  },
});

async function overwrite(path: string, bytes: Uint8Array, context: ToolContext): Promise<void> {
  const there = await present(path, context).catch((error: unknown) => {
    if (isMissing(error)) return null;
    throw error;
  });
  if (there !== null) await context.marks.check(path, there.bytes);
  await write(path, bytes, there === null ? null : there.version, context);
}

async function appendTo(path: string, bytes: Uint8Array, { run, marks, signal }: ToolContext): Promise<void> {
  marks.forget(path);
  await run.use((sandbox) => sandbox.files.append(path, bytes), { signal });
}

async function write(path: string, bytes: Uint8Array, version: string | null | undefined, context: ToolContext) {
  const { run, marks, signal } = context;
  marks.forget(path);
  const options: WriteOptions = version === undefined ? {} : { ifVersion: version };
  await run.use((sandbox: Sandbox) => sandbox.files.write(path, bytes, options), { signal });
  await marks.saw(path, bytes);
}

/** The present content. The version is read first, so the write detects a change in between. */
function present(path: string, { run, signal }: ToolContext) {
  return run.use(
    async ({ files }) => {
      const { kind, sizeBytes, version } = await files.stat(path);
      const maxBytes = TOOL_LIMITS.editMaxBytes;
      if (kind === "directory") throw new SandlotError("is_a_directory", { path });
      if (sizeBytes > maxBytes) throw new SandlotError("file_too_large", { path, sizeBytes, maxBytes });
      return { bytes: await files.read(path), version };
    },
    { signal, repeatable: true },
  );
}

function checkSize(sizeBytes: number): void {
  if (sizeBytes <= TOOL_LIMITS.writeMaxBytes) return;
  throw new ToolRefusal(
    "content_too_large",
    `The content has ${sizeBytes} bytes; one call takes at most ${TOOL_LIMITS.writeMaxBytes}. Write the first part, then add the others with append=true, or write a program that makes the file.`,
  );
}

function occurrences(text: string, part: string): readonly number[] {
  const places: number[] = [];
  for (let at = text.indexOf(part); at >= 0; at = text.indexOf(part, at + part.length)) places.push(at);
  return places;
}

function ambiguous(path: string, text: string, places: readonly number[]): ToolRefusal {
  const lines = places.slice(0, 10).map((at) => text.slice(0, at).split("\n").length);
  const more = places.length > lines.length ? ", …" : "";
  return new ToolRefusal(
    "ambiguous_match",
    `The text occurs ${places.length} times in ${path} (lines ${lines.join(", ")}${more}). Include more of its surroundings, or set replace_all.`,
  );
}
