/** Makes untrusted file names harmless: one path segment, no hidden file, no special meaning in a shell or a prompt. */

/** Most file systems end at 255 bytes; a number may have to be added. */
const NAME_MAX_BYTES = 200;
const EXTENSION_MAX_CHARS = 16;

export function safeName(name: string, fallback: string): string {
  const segment = name.normalize("NFC").split(/[/\\]/).at(-1) ?? "";
  const plain = segment
    // Control, format and separator characters: invisible in a terminal, or a new line in a prompt.
    .replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, "")
    .replace(/[<>:"|?*`$]/g, "_")
    .trim()
    .replace(/^\.+/, "_")
    .replace(/[. ]+$/, "");
  if (plain === "" || /^_+$/.test(plain)) return fallback;
  const { stem, extension } = splitName(plain);
  return cutToBytes(stem, NAME_MAX_BYTES - byteLength(extension)) + extension;
}

/** `report.pdf`, `report_1.pdf`, `report_2.pdf`, … */
export function numberedName(name: string, number: number): string {
  if (number === 0) return name;
  const { stem, extension } = splitName(name);
  return `${stem}_${number}${extension}`;
}

function splitName(name: string): { stem: string; extension: string } {
  const at = name.lastIndexOf(".");
  if (at <= 0 || name.length - at > EXTENSION_MAX_CHARS) return { stem: name, extension: "" };
  return { stem: name.slice(0, at), extension: name.slice(at) };
}

function cutToBytes(text: string, maxBytes: number): string {
  let cut = "";
  let bytes = 0;
  for (const character of text) {
    bytes += byteLength(character);
    if (bytes > maxBytes) break;
    cut += character;
  }
  return cut;
}

function byteLength(text: string): number {
  return Buffer.byteLength(text);
}
