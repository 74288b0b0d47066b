/** What a file is shown as. Its name chooses, its bytes may overrule: what is no text is not shown as text. */

import type { FileStat, Sandbox } from "@sandlot/client";

/** More text than this makes a page slow, and is no longer read by a person. */
const TEXT_MAX_BYTES = 512 * 1024;
/** Formatted text costs elements. */
const MARKDOWN_MAX_BYTES = 128 * 1024;
const MEDIA_MAX_BYTES = 20 * 1024 * 1024;
const IMAGES: Readonly<Record<string, string>> = {
  ...{ png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp" },
  ...{ avif: "image/avif", svg: "image/svg+xml", bmp: "image/bmp", ico: "image/x-icon" },
};

export type Content =
  | {
      readonly kind: "text";
      readonly text: string;
      readonly isCut: boolean;
      /** Another way to show it. */
      readonly formatted: "markdown" | "table" | null;
    }
  | { readonly kind: "image" | "pdf"; readonly blob: Blob }
  | { readonly kind: "binary" };

export async function readContent(sandbox: Sandbox, stat: FileStat, signal: AbortSignal): Promise<Content> {
  const extension = /\.([A-Za-z0-9]+)$/.exec(stat.path)?.[1]?.toLowerCase() ?? "";
  // The type is of this list: never one under which a browser runs a script.
  const type = extension === "pdf" ? "application/pdf" : IMAGES[extension];
  const max = type === undefined ? TEXT_MAX_BYTES : MEDIA_MAX_BYTES;
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  for await (const part of sandbox.files.download(stat.path, { length: max })) {
    signal.throwIfAborted();
    parts.push(part as Uint8Array<ArrayBuffer>);
    size += part.byteLength;
    // A link's target may be larger than was asked for.
    if (size >= max) break;
  }
  const blob = new Blob(parts, { type: type ?? "text/plain" });
  if (type !== undefined) {
    if (stat.sizeBytes > max || size >= max) return { kind: "binary" };
    return { kind: extension === "pdf" ? "pdf" : "image", blob };
  }
  const isCut = stat.sizeBytes > max || size > max;
  const content = new Uint8Array(await blob.arrayBuffer()).subarray(0, max);
  if (content.subarray(0, 8_192).includes(0)) return { kind: "binary" };
  try {
    // A letter at the end may be cut.
    const text = new TextDecoder("utf-8", { fatal: !isCut }).decode(content);
    return { kind: "text", text, isCut, formatted: formattedOf(extension, content.byteLength) };
  } catch {
    return { kind: "binary" };
  }
}

function formattedOf(extension: string, sizeBytes: number): "markdown" | "table" | null {
  if (extension === "csv" || extension === "tsv") return "table";
  return (extension === "md" || extension === "markdown") && sizeBytes <= MARKDOWN_MAX_BYTES ? "markdown" : null;
}
