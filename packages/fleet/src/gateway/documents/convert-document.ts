/**
 * The process that converts one document: bytes on stdin, Markdown on stdout. `convert-document <extension>
 * <maxBytes>`. Exit 0: done. Exit 2: refused, and stderr says why in one line. Exit 3: a package that reads documents
 * is not installed.
 */

import { markdownOf } from "./markdown.ts";

const [extension = "", maxUncompressedBytes = "0"] = process.argv.slice(2);
try {
  const pieces: Uint8Array[] = [];
  for await (const piece of process.stdin) pieces.push(piece);
  process.stdout.write(await markdownOf(extension, Buffer.concat(pieces), Number(maxUncompressedBytes)));
} catch (error) {
  const isMissing = error instanceof Error && "code" in error && error.code === "ERR_MODULE_NOT_FOUND";
  process.stderr.write(`${error instanceof Error ? error.message.split("\n")[0] : String(error)}\n`);
  process.exitCode = isMissing ? 3 : 2;
}
