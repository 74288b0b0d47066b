/**
 * Reads a daemon's ready line from the descriptor or socket that the daemon was given.
 */

import { checkProtocol, isSandlotError, type ReadyLine, readyLineSchema, SandlotError } from "@sandlot/contract";
import { readShortJson } from "../untrusted/json.ts";

const LINE_MAX_BYTES = 4_096;

/** Rejects when the source ends without a line, or when the signal fires. */
export function readReadyLine(source: NodeJS.ReadableStream, signal?: AbortSignal): Promise<ReadyLine> {
  return new Promise((resolve, reject) => {
    let text = "";
    const finish = (settle: () => void): void => {
      source.off("data", onData);
      source.off("end", onEnd);
      source.off("error", onError);
      signal?.removeEventListener("abort", onAbort);
      settle();
    };
    const onData = (chunk: Buffer | string): void => {
      text += chunk.toString();
      const end = text.indexOf("\n");
      if (end >= 0 && end <= LINE_MAX_BYTES) finish(() => settleLine(text.slice(0, end), resolve, reject));
      else if (text.length > LINE_MAX_BYTES) finish(() => reject(broken()));
    };
    const onEnd = (): void => finish(() => reject(broken()));
    const onError = (error: Error): void => finish(() => reject(error));
    const onAbort = (): void => finish(() => reject(signal?.reason));
    if (signal?.aborted === true) return reject(signal.reason);
    signal?.addEventListener("abort", onAbort, { once: true });
    source.on("data", onData);
    source.on("end", onEnd);
    source.on("error", onError);
  });
}

function settleLine(line: string, resolve: (ready: ReadyLine) => void, reject: (error: unknown) => void): void {
  try {
    const ready = readyLineSchema.parse(readShortJson(Buffer.from(line)));
    checkProtocol("daemon", ready.protocol);
    resolve(ready);
  } catch (error) {
    reject(isSandlotError(error, "protocol_incompatible") ? error : broken());
  }
}

function broken(): SandlotError {
  return new SandlotError("internal", { problem: "the daemon ended or spoke before it was ready" });
}
