/**
 * Reads a daemon's ready line from its container's output, for containers whose sockets may not be visible outside. The
 * first process gives the daemon its own output to announce on, and the engine streams that output.
 */

import { type DaemonConfig, type ReadyLine, readyLineSchema } from "@sandlot/contract";
import { readShortJson } from "../../../untrusted/json.ts";

/** The descriptor on which the first process duplicates its output. */
export const ANNOUNCE_FD = 4;

const HEADER_BYTES = 8;
/** More than a daemon and a shell print before they are ready. */
const SAID_MAX_BYTES = 64 * 1024;

/**
 * Resolves with the daemon's line. Never resolves when the output ends without one: the caller waits for the end as
 * well.
 */
export async function hearReady(
  output: NodeJS.ReadableStream,
  { sandboxId, generation }: Pick<DaemonConfig, "sandboxId" | "generation">,
  signal: AbortSignal,
): Promise<void> {
  const destroy = () => (output as NodeJS.ReadableStream & { destroy(): void }).destroy();
  signal.addEventListener("abort", destroy, { once: true });
  let said = Buffer.alloc(0);
  try {
    for await (const chunk of output) {
      said = Buffer.concat([said, Buffer.from(chunk as Uint8Array)]);
      const isIt = (line: ReadyLine) => line.sandboxId === sandboxId && line.generation === generation;
      if (readyLines(plainOutput(said)).some(isIt)) return;
      if (said.length > SAID_MAX_BYTES) break;
    }
  } catch {
    // The engine went away, or the caller stopped waiting: both are reported elsewhere.
  } finally {
    signal.removeEventListener("abort", destroy);
    destroy();
  }
  signal.throwIfAborted();
  await new Promise<never>((_, reject) =>
    signal.addEventListener("abort", () => reject(signal.reason), { once: true }),
  );
}

function readyLines(text: string): ReadyLine[] {
  return text.split("\n").flatMap((line) => {
    const parsed = readyLineSchema.safeParse(readShortJson(Buffer.from(line)));
    return parsed.success ? [parsed.data] : [];
  });
}

/** Without a terminal each piece comes with a header of eight bytes: which stream, and how long. */
export function plainOutput(raw: Buffer): string {
  const parts: string[] = [];
  let at = 0;
  while (at + HEADER_BYTES <= raw.length && (raw[at] ?? 9) <= 2 && raw.readUInt32BE(at) >>> 24 === (raw[at] ?? 0)) {
    const size = raw.readUInt32BE(at + 4);
    parts.push(raw.toString("utf8", at + HEADER_BYTES, at + HEADER_BYTES + size));
    at += HEADER_BYTES + size;
  }
  return at === 0 ? raw.toString("utf8") : parts.join("");
}
