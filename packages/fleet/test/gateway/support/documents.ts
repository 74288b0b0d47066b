/** Small handmade documents of every convertible kind, and malicious archives. */

import { crc32, deflateRawSync } from "node:zlib";

interface Entry {
  readonly name: string;
  readonly content: string | Buffer;
}

/** A ZIP archive of deflated entries. */
function zip(entries: readonly Entry[]): Buffer {
  const parts: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const { name, content } of entries) {
    const plain = Buffer.from(content);
    const packed = deflateRawSync(plain, { level: 9 });
    const facts = Buffer.alloc(26);
    facts.writeUInt16LE(20, 0);
    facts.writeUInt16LE(8, 4);
    facts.writeUInt32LE(crc32(plain), 10);
    facts.writeUInt32LE(packed.byteLength, 14);
    facts.writeUInt32LE(plain.byteLength, 18);
    facts.writeUInt16LE(Buffer.byteLength(name), 22);
    const local = Buffer.concat([Buffer.from("PK\x03\x04", "latin1"), facts, Buffer.from(name), packed]);
    const where = Buffer.alloc(14);
    where.writeUInt32LE(offset, 10);
    directory.push(Buffer.concat([Buffer.from("PK\x01\x02\x14\x00", "latin1"), facts, where, Buffer.from(name)]));
    parts.push(local);
    offset += local.byteLength;
  }
  const central = Buffer.concat(directory);
  const end = Buffer.alloc(18);
  end.writeUInt16LE(entries.length, 4);
  end.writeUInt16LE(entries.length, 6);
  end.writeUInt32LE(central.byteLength, 8);
  end.writeUInt32LE(offset, 12);
  return Buffer.concat([...parts, central, Buffer.from("PK\x05\x06", "latin1"), end]);
}

const XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>';
const RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships";
const OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
const WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main";
const SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";

function contentTypes(parts: Readonly<Record<string, string>>): Entry {
  const overrides = Object.entries(parts)
    .map(([name, type]) => `<Override PartName="${name}" ContentType="${type}"/>`)
    .join("");
  return {
    name: "[Content_Types].xml",
    content: `${XML}<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/>${overrides}</Types>`,
  };
}

function relations(name: string, entries: readonly (readonly [id: string, type: string, target: string])[]): Entry {
  const inner = entries
    .map(([id, type, target]) => `<Relationship Id="${id}" Type="${OFFICE}/${type}" Target="${target}"/>`)
    .join("");
  return { name, content: `${XML}<Relationships xmlns="${RELATIONS}">${inner}</Relationships>` };
}

export function wordDocument(paragraphs: readonly string[], more: readonly Entry[] = []): Buffer {
  const body = paragraphs.map((text) => `<w:p><w:r><w:t>${text}</w:t></w:r></w:p>`).join("");
  return zip([
    contentTypes({
      "/word/document.xml": "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml",
    }),
    relations("_rels/.rels", [["r1", "officeDocument", "word/document.xml"]]),
    { name: "word/document.xml", content: `${XML}<w:document xmlns:w="${WORD}"><w:body>${body}</w:body></w:document>` },
    ...more,
  ]);
}

/** A bomb: a small archive that unpacks to much more. */
export function wordBomb(bytes: number): Buffer {
  return wordDocument(["x".repeat(bytes)]);
}

export function workbook(): Buffer {
  const rows =
    '<row r="1"><c r="A1" t="inlineStr"><is><t>name</t></is></c><c r="B1" t="inlineStr"><is><t>when</t></is></c></row>' +
    '<row r="2"><c r="A2" t="inlineStr"><is><t>apple|pear</t></is></c><c r="B2" s="1"><v>46024</v></c></row>';
  return zip([
    contentTypes({
      "/xl/workbook.xml": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml",
      "/xl/worksheets/sheet1.xml": "application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml",
      "/xl/styles.xml": "application/vnd.openxmlformats-officedocument.spreadsheetml.styles+xml",
    }),
    relations("_rels/.rels", [["r1", "officeDocument", "xl/workbook.xml"]]),
    {
      name: "xl/workbook.xml",
      content: `${XML}<workbook xmlns="${SHEET}" xmlns:r="${OFFICE}"><sheets><sheet name="Fruit" sheetId="1" r:id="r1"/></sheets></workbook>`,
    },
    relations("xl/_rels/workbook.xml.rels", [
      ["r1", "worksheet", "worksheets/sheet1.xml"],
      ["r2", "styles", "styles.xml"],
    ]),
    {
      name: "xl/styles.xml",
      content: `${XML}<styleSheet xmlns="${SHEET}"><cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="14" applyNumberFormat="1"/></cellXfs></styleSheet>`,
    },
    {
      name: "xl/worksheets/sheet1.xml",
      content: `${XML}<worksheet xmlns="${SHEET}"><sheetData>${rows}</sheetData></worksheet>`,
    },
  ]);
}

export function openDocumentText(text: string): Buffer {
  const names =
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"';
  return zip([
    { name: "mimetype", content: "application/vnd.oasis.opendocument.text" },
    {
      name: "content.xml",
      content: `${XML}<office:document-content ${names} office:version="1.2"><office:body><office:text><text:p>${text}</text:p></office:text></office:body></office:document-content>`,
    },
  ]);
}

export function pdf(text: string): Buffer {
  const stream = `BT /F1 24 Tf 72 700 Td (${text}) Tj ET`;
  const objects = [
    "<< /Type /Catalog /Pages 2 0 R >>",
    "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
    "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
    `<< /Length ${stream.length} >>\nstream\n${stream}\nendstream`,
    "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
  ];
  let text2 = "%PDF-1.4\n";
  const offsets: number[] = [];
  for (const [index, object] of objects.entries()) {
    offsets.push(text2.length);
    text2 += `${index + 1} 0 obj\n${object}\nendobj\n`;
  }
  const start = text2.length;
  const table = offsets.map((offset) => `${String(offset).padStart(10, "0")} 00000 n \n`).join("");
  text2 += `xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${table}`;
  text2 += `trailer\n<< /Size ${objects.length + 1} /Root 1 0 R >>\nstartxref\n${start}\n%%EOF\n`;
  return Buffer.from(text2, "latin1");
}
