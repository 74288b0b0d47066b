/**
 * The Markdown of one document. Runs in the process that `converter.ts` starts, and imports nothing of the gateway.
 *
 * A workbook is read twice: once with limits on unpacking, which refuses a bomb; then for its cells, because only the
 * second reader distinguishes dates from numbers.
 */

const ZIP_ENTRIES_MAX = 5_000;
const TABLE_CELLS_MAX = 200_000;
const XML_ELEMENTS_MAX = 1_000_000;

export async function markdownOf(extension: string, document: Buffer, maxUncompressedBytes: number): Promise<string> {
  const { OfficeConverter } = await import("officeparser");
  const { value } = await OfficeConverter.convert(document, "md", {
    parseConfig: {
      fileType: extension.slice(1) as "docx",
      decompressionLimits: {
        maxUncompressedBytes,
        maxZipEntries: ZIP_ENTRIES_MAX,
        maxTableCells: TABLE_CELLS_MAX,
        maxXmlElements: XML_ELEMENTS_MAX,
      },
    },
  });
  if (extension === ".xlsx") return workbook(document);
  return tidy(String(value));
}

/** Removes the library's metadata block and heading anchors: neither is the document's text. */
function tidy(markdown: string): string {
  return markdown
    .replace(/^---\n[\s\S]*?\n---\n+/, "")
    .replace(/^---\n+/, "")
    .replace(/^(#{1,6} .*?) \{#[^}]*\}$/gm, "$1")
    .trimStart();
}

async function workbook(document: Buffer): Promise<string> {
  const { default: readSheets } = await import("read-excel-file/node");
  const sheets = await readSheets(document);
  return sheets.map(({ sheet, data }) => `## ${sheet}\n\n${table(data)}`).join("\n");
}

function table(rows: readonly (readonly unknown[])[]): string {
  const [head, ...body] = rows.slice(0, TABLE_CELLS_MAX);
  if (head === undefined) return "(empty)\n";
  const lines = [line(head), line(head.map(() => "---")), ...body.map(line)];
  return `${lines.join("\n")}\n`;
}

function line(cells: readonly unknown[]): string {
  return `| ${cells.map(cell).join(" | ")} |`;
}

function cell(value: unknown): string {
  if (value === null || value === undefined) return "";
  const text = value instanceof Date ? value.toISOString().replace(/T00:00:00\.000Z$/, "") : String(value);
  return text.replace(/\|/g, "\\|").replace(/\r?\n/g, " ");
}
