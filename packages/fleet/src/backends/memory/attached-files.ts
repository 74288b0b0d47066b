/**
 * The files of a sandbox in memory, for its holder.
 */

import { SANDBOX_LIMITS, type SandboxFiles, SandlotError } from "@sandlot/contract";
import { noStream } from "../../backend/unsupported.ts";
import type { Attached } from "./attachment.ts";
import type { FileAnswer, FileCall } from "./engine-api.ts";
import { FILE_MAX_BYTES } from "./files/node.ts";

/** A stream reads this much at a time. */
const PIECE_BYTES = 1024 * 1024;

export function memoryFiles(attached: Attached): SandboxFiles {
  const call =
    <Name extends FileCall>(name: Name) =>
    async (...args: Parameters<SandboxFiles[Name]>): Promise<FileAnswer<Name>> => {
      attached.check();
      return attached.engine.file(attached.target, name, args);
    };
  const read = call("read");
  const write = call("write");
  const stat = call("stat");
  return {
    read,
    write,
    stat,
    readText: call("readText"),
    append: call("append"),
    mkdir: call("mkdir"),
    rename: call("rename"),
    remove: call("remove"),
    list: call("list"),
    glob: call("glob"),
    grep: call("grep"),
    async *download(path, { offset = 0, length = Number.MAX_SAFE_INTEGER } = {}) {
      const { version } = await stat(path);
      for (let at = offset, left = length; left > 0; ) {
        const piece = await read(path, { offset: at, length: Math.min(PIECE_BYTES, left) });
        if (piece.length === 0) return;
        const { version: now } = await stat(path);
        if (now !== version) throw new SandlotError("file_changed", { path, expected: version, actual: now });
        yield piece;
        at += piece.length;
        left -= piece.length;
      }
    },
    upload: async (path, content, options) => {
      attached.check();
      await write(path, await collect(path, content), options);
    },
    watch: () => noStream("memory", "watch", "watching files"),
  };
}

async function collect(path: string, content: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const maxBytes = Math.min(FILE_MAX_BYTES, SANDBOX_LIMITS.readMaxBytes);
  const parts: Uint8Array[] = [];
  let sizeBytes = 0;
  for await (const part of content) {
    sizeBytes += part.length;
    if (sizeBytes > maxBytes) throw new SandlotError("file_too_large", { path, sizeBytes, maxBytes });
    parts.push(part.slice());
  }
  return Buffer.concat(parts);
}
