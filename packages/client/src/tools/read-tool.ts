/** `read_file`: a text by lines, or an image as an image. A run must read a file before it may change it. */

import { isSandlotError, type SandboxFiles, SandlotError } from "@sandlot/contract";
import { z } from "zod";
import { TOOL_LIMITS } from "./limits.ts";
import { absolutePath, descriptionInput, pathInput } from "./paths.ts";
import { countLines, headOf, textOf } from "./text.ts";
import { defineTool, type ToolAnswer, ToolRefusal } from "./tool.ts";

export const readFileTool = defineTool({
  name: "read_file",
  title: "Read a file",
  description:
    "Reads a text file, whole or by lines, both counted from 1 and included. Images (PNG, JPEG, GIF, WebP) are shown as images.",
  input: z.object({
    description: descriptionInput,
    path: pathInput("The file."),
    start_line: z.int().optional().meta({ minimum: 1 }),
    end_line: z.int().optional().meta({ minimum: 1 }),
  }),
  readOnly: true,
  ownLimit: true,
  async run(input, { run, marks, signal, redact, workingDirectory, readMaxChars }): Promise<ToolAnswer> {
    const { start_line: startLine, end_line: endLine } = input;
    if (startLine !== undefined && startLine < 1) return { text: "(start_line must be >= 1)" };
    if (endLine !== undefined && endLine < 1) return { text: "(end_line must be >= 1)" };
    if (startLine !== undefined && endLine !== undefined && startLine > endLine)
      return { text: "(start_line > end_line: no lines in range)" };
    const path = absolutePath(input.path, workingDirectory);
    const bytes = await run.use((sandbox) => wholeFile(sandbox.files, path), { signal, repeatable: true });
    const image = imageTypeOf(bytes);
    if (image !== null) return imageAnswer(path, image, bytes);
    const text = decodeText(path, bytes);
    await marks.saw(path, bytes);
    return {
      text: linesOf(text, { startLine: startLine ?? 1, endLine, maxChars: readMaxChars }, redact),
      facts: { lineCount: countLines(text) },
    };
  },
});

/** The whole file: its hash is needed for every range. */
async function wholeFile(files: SandboxFiles, path: string): Promise<Uint8Array> {
  const { kind, sizeBytes } = await files.stat(path);
  const maxBytes = TOOL_LIMITS.readFileMaxBytes;
  if (kind === "directory") throw new SandlotError("is_a_directory", { path });
  if (sizeBytes > maxBytes) throw tooLarge(path, `${sizeBytes} bytes`, maxBytes);
  // A link's target, or a growing file, is limited too.
  const bytes = await files.read(path, { length: maxBytes + 1 });
  if (bytes.length > maxBytes) throw tooLarge(path, `more than ${maxBytes} bytes`, maxBytes);
  return bytes;
}

function tooLarge(path: string, size: string, maxBytes: number): ToolRefusal {
  return new ToolRefusal(
    "file_too_large",
    `${path} has ${size}; read_file takes up to ${maxBytes}. Look at parts of it with bash, for example \`sed -n '1,200p'\`, \`head -c\` or \`grep -n\`.`,
  );
}

function imageAnswer(path: string, mimeType: string, bytes: Uint8Array): ToolAnswer {
  if (bytes.length > TOOL_LIMITS.imageMaxBytes)
    throw new ToolRefusal(
      "file_too_large",
      `${path} is an image of ${bytes.length} bytes; they are shown up to ${TOOL_LIMITS.imageMaxBytes}. Make it smaller with a program first.`,
    );
  return { text: `${path}: ${mimeType}, ${bytes.length} bytes`, images: [{ mimeType, bytes }] };
}

/** Decided by content: names can be wrong. */
export function imageTypeOf(bytes: Uint8Array): string | null {
  const starts = (...head: number[]) => head.every((byte, index) => bytes[index] === byte);
  if (starts(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a)) return "image/png";
  if (starts(0xff, 0xd8, 0xff)) return "image/jpeg";
  if (starts(0x47, 0x49, 0x46, 0x38)) return "image/gif";
  const isWebp = bytes[8] === 0x57 && bytes[9] === 0x45 && bytes[10] === 0x42 && bytes[11] === 0x50;
  return starts(0x52, 0x49, 0x46, 0x46) && isWebp ? "image/webp" : null;
}

export function decodeText(path: string, bytes: Uint8Array): string {
  const text = textOf(bytes);
  if (text !== null) return text;
  throw new ToolRefusal(
    "binary_file",
    `${path} is not UTF-8 text (${bytes.length} bytes). Look at it with bash, for example \`file\`, \`xxd | head\` or a program for its format.`,
  );
}

function linesOf(
  text: string,
  { startLine, endLine, maxChars }: { startLine: number; endLine: number | undefined; maxChars: number },
  redact: (text: string) => string,
): string {
  if (text === "") return "(empty)";
  const lineCount = countLines(text);
  if (startLine > lineCount) return `(start_line exceeds file length: ${lineCount} lines)`;
  const lines = text.split("\n").slice(startLine - 1, Math.min(endLine ?? lineCount, lineCount));
  const wanted = lines.join("\n");
  if (wanted.length <= maxChars) return wanted;
  const whole = wholeLines(wanted, maxChars);
  if (whole === "") return partOfLine(redact(lines[0] ?? ""), maxChars, startLine, lineCount);
  const last = startLine + countLines(whole) - 1;
  return `${whole}[cut: lines ${startLine} to ${last} of ${lineCount} are shown. Go on with start_line=${last + 1}]`;
}

/** As many whole lines as fit, so that continuing with the next one shows everything. */
function wholeLines(text: string, maxChars: number): string {
  return text.slice(0, text.lastIndexOf("\n", maxChars - 1) + 1);
}

/** No range of lines shows the rest of a line that is too long by itself. */
function partOfLine(line: string, maxChars: number, number: number, lineCount: number): string {
  const shown = headOf(line, maxChars);
  const next = number < lineCount ? `, the next line with start_line=${number + 1}` : "";
  return `${shown}\n[cut: ${shown.length} of the ${line.length} characters of line ${number} are shown. See the rest with bash, for example \`sed -n ${number}p FILE | cut -c ${shown.length + 1}-\`${next}]`;
}

/** Whether the path is missing, as opposed to unreadable. */
export function isMissing(error: unknown): boolean {
  return isSandlotError(error, "file_not_found");
}
