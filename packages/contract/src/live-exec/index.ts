/**
 * `@sandlot/contract/live-exec`: a command with live output, over any sandbox. The library and the client run
 * `exec(command, { onStdout })` with it.
 *
 * Invariants
 * - The command waits for its listeners: it is started with `output: "hold"`, and the next piece is read when the
 *   listener's promise has settled.
 * - A listener gets whole characters. Bytes that are not UTF-8 become U+FFFD, as in a result.
 * - However the call ends, the command has ended. The result counts lost output.
 */

import { SandlotError } from "../errors.ts";
import type { ExecResult, FollowEnd } from "../results/exec.ts";
import type { ExecOptions, Sandbox } from "../sandbox.ts";
import { SANDBOX_LIMITS } from "../sandbox-limits.ts";
import { isContinuation } from "../utf8.ts";

/** Whether a listener wants live output. */
export function isLive(options: ExecOptions | undefined): boolean {
  return options?.onStdout !== undefined || options?.onStderr !== undefined;
}

export async function liveExec(
  sandbox: Pick<Sandbox, "spawn" | "execs">,
  command: string | readonly string[],
  options: ExecOptions = {},
): Promise<ExecResult> {
  const { onStdout, onStderr, outputMaxBytes = SANDBOX_LIMITS.execResultMaxBytes, ...rest } = options;
  const { timeoutMs = SANDBOX_LIMITS.execTimeoutMs, signal } = rest;
  const { execId } = await sandbox.spawn(command, { ...rest, timeoutMs, output: "hold" });
  const streams = {
    stdout: new LiveStream(outputMaxBytes, onStdout),
    stderr: new LiveStream(outputMaxBytes, onStderr),
  };
  try {
    for await (const event of sandbox.execs.follow(execId, signal === undefined ? {} : { signal })) {
      if (event.type === "output") await streams[event.stream].take(event.bytes);
      else if (event.type === "gap") streams[event.stream].miss(event.toOffset - event.fromOffset);
      else {
        await streams.stdout.end();
        await streams.stderr.end();
        return resultOf(event.end, streams.stdout, streams.stderr);
      }
    }
    throw new SandlotError("internal", { problem: "the output ended without an end" });
  } catch (error) {
    // The caller gets the first error; an unreachable sandbox ends the command itself.
    await sandbox.execs.kill(execId).catch(() => false);
    signal?.throwIfAborted();
    throw error;
  }
}

/** How to get the rest of an output while its command is remembered. */
export function omittedRemedy(
  execId: string,
  fromOffset: { readonly stdout: number; readonly stderr: number },
): string {
  const { stdout, stderr } = fromOffset;
  return (
    `Read them with execs.follow("${execId}", { from: { stdout: ${stdout}, stderr: ${stderr} } }), over HTTP with ` +
    `GET …/execs/${execId}/output?stdoutOffset=${stdout}&stderrOffset=${stderr}, or ask for more with outputMaxBytes.`
  );
}

function resultOf(end: FollowEnd, stdout: LiveStream, stderr: LiveStream): ExecResult {
  const { execId, status, exitCode, signal, durationMs } = end;
  // Taken first: half a character at the beginning is dropped, and counted.
  const texts = { stdout: stdout.takeText(), stderr: stderr.takeText() };
  const remedy = omittedRemedy(execId, { stdout: 0, stderr: 0 });
  const omitted = { stdoutBytes: stdout.omittedBytes, stderrBytes: stderr.omittedBytes, remedy };
  return {
    ...{ execId, status, exitCode, signal, durationMs },
    ...texts,
    ...{ stdoutDroppedBytes: stdout.missedBytes, stderrDroppedBytes: stderr.missedBytes },
    ...(omitted.stdoutBytes + omitted.stderrBytes > 0 ? { omitted } : {}),
  };
}

/** One stream: the pieces for the listener, and the tail for the result. */
class LiveStream {
  readonly #maxBytes: number;
  readonly #listener: ((text: string) => unknown) | undefined;
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  #parts: Uint8Array[] = [];
  #heldBytes = 0;
  missedBytes = 0;
  omittedBytes = 0;

  constructor(maxBytes: number, listener: ((text: string) => unknown) | undefined) {
    this.#maxBytes = maxBytes;
    this.#listener = listener;
  }

  async take(bytes: Uint8Array): Promise<void> {
    this.#parts.push(bytes.slice());
    this.#heldBytes += bytes.byteLength;
    while (this.#heldBytes > this.#maxBytes) this.#omit(this.#heldBytes - this.#maxBytes);
    await this.#tell(this.#decoder.decode(bytes, { stream: true }));
  }

  async end(): Promise<void> {
    await this.#tell(this.#decoder.decode());
  }

  miss(bytes: number): void {
    this.missedBytes += bytes;
  }

  /** The held text, from its first whole character on. */
  takeText(): string {
    while (this.omittedBytes + this.missedBytes > 0 && isContinuation(this.#parts[0]?.[0])) this.#omit(1);
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    return this.#parts.map((part) => decoder.decode(part, { stream: true })).join("") + decoder.decode();
  }

  #omit(bytes: number): void {
    const [first = new Uint8Array(0)] = this.#parts;
    const count = Math.min(bytes, first.byteLength);
    if (count === first.byteLength) this.#parts.shift();
    else this.#parts[0] = first.subarray(count);
    this.#heldBytes -= count;
    this.omittedBytes += count;
  }

  async #tell(text: string): Promise<void> {
    if (text !== "") await this.#listener?.(text);
  }
}
