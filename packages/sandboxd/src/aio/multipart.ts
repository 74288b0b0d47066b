/** An uploaded file: `multipart/form-data` with a part `file` and optionally one `path`. */

import type { IncomingMessage } from "node:http";
import { ValidationProblem } from "./answers.ts";
import { readBody } from "./body.ts";

export interface Uploaded {
  readonly file: { readonly name: string; readonly bytes: Buffer };
  readonly fields: Readonly<Record<string, string | undefined>>;
}

const NEWLINE = Buffer.from("\r\n");
const HEAD_END = Buffer.from("\r\n\r\n");

export async function multipart(request: IncomingMessage): Promise<Uploaded> {
  const body = await readBody(request);
  const boundary = /boundary=(?:"([^"]+)"|([^;]+))/.exec(request.headers["content-type"] ?? "");
  const fields: Record<string, string> = {};
  let file: Uploaded["file"] | null = null;
  for (const part of partsOf(body, boundary?.[1] ?? boundary?.[2] ?? "")) {
    const name = /[; ]name="([^"]*)"/.exec(part.head)?.[1] ?? "";
    const fileName = /filename="([^"]*)"/.exec(part.head)?.[1];
    if (name === "file") file = { name: baseName(fileName ?? "upload"), bytes: part.content };
    else fields[name] = part.content.toString("utf8");
  }
  if (file === null)
    throw new ValidationProblem([{ type: "missing", loc: ["body", "file"], msg: "Field required", input: null }]);
  return { file, fields };
}

function* partsOf(body: Buffer, boundary: string): Generator<{ readonly head: string; readonly content: Buffer }> {
  if (boundary === "") return;
  const separator = Buffer.from(`--${boundary}`);
  let at = body.indexOf(separator);
  while (at >= 0) {
    const start = at + separator.length + NEWLINE.length;
    const next = body.indexOf(separator, start);
    if (next < 0) return;
    const part = body.subarray(start, next - NEWLINE.length);
    const end = part.indexOf(HEAD_END);
    if (end >= 0) yield { head: part.toString("utf8", 0, end), content: part.subarray(end + HEAD_END.length) };
    at = next;
  }
}

function baseName(name: string): string {
  return name.slice(name.lastIndexOf("/") + 1) || "upload";
}
