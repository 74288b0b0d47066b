/**
 * Waits for a line of output or for a port, always with a deadline.
 *
 * Output triggers a check. The kernel does not announce a new listener, so the daemon polls the kernel's table; unlike
 * a connection attempt, no program notices that.
 */

import { StringDecoder } from "node:string_decoder";
import { SandlotError, type WaitForOutputReply } from "@sandlot/contract";
import { monotonicMs, sleep, timer } from "../clock.ts";
import { listeningPorts } from "../introspection/ports.ts";
import { compileRegex, guarded } from "../patterns/guarded-regex.ts";
import type { Exec } from "./exec.ts";
import type { OutputRing } from "./output-ring.ts";

const PORT_LOOK_MS = 20;
/** The searched part of a line that does not end. */
const LINE_MAX_CHARS = 16 * 1024;
const READ_BYTES = 256 * 1024;

export interface Waiting {
  readonly timeoutMs: number;
  /** The caller has left. */
  isAbandoned(): boolean;
}

export async function waitForPort(port: number, { timeoutMs, isAbandoned }: Waiting): Promise<void> {
  const deadline = monotonicMs() + timeoutMs;
  while (!listeningPorts().some((listening) => listening.port === port)) {
    const leftMs = deadline - monotonicMs();
    if (leftMs <= 0) throw new SandlotError("wait_timeout", { waitedFor: `port ${port}`, timeoutMs });
    if (isAbandoned()) return;
    await sleep(Math.min(PORT_LOOK_MS, leftMs));
  }
}

/** The first matching line, in the held and the new output. */
export function waitForOutput(
  exec: Exec,
  pattern: string,
  literal: boolean,
  { timeoutMs, isAbandoned }: Waiting,
): Promise<WaitForOutputReply> {
  const matches = lineTest(pattern, literal);
  const streams = (["stdout", "stderr"] as const).map((name) => ({ name, reader: new LineReader(exec[name]) }));
  return new Promise((resolve, reject) => {
    const stops: (() => void)[] = [];
    const settle = (work: () => WaitForOutputReply | null) => {
      try {
        const reply = work();
        if (reply === null) return;
        resolve(reply);
      } catch (error) {
        reject(error);
      }
      for (const stop of stops) stop();
    };
    const look = () =>
      settle(() => {
        for (const { name, reader } of streams) {
          const line = reader.find(matches, pattern);
          if (line !== null) return { matched: true, stream: name, line };
        }
        const isOver = isAbandoned() || streams.every(({ reader }) => reader.atEnd);
        return isOver ? { matched: false } : null;
      });
    const late = timer(timeoutMs, () =>
      settle(() => {
        const waitedFor = `${JSON.stringify(pattern)} in the output of ${exec.id}`;
        throw new SandlotError("wait_timeout", { waitedFor, timeoutMs });
      }),
    );
    stops.push(() => late.cancel(), exec.stdout.listen(look), exec.stderr.listen(look));
    look();
  });
}

function lineTest(pattern: string, literal: boolean): (line: string) => boolean {
  if (literal) return (line) => line.includes(pattern);
  const expression = compileRegex(pattern, "");
  return (line) => expression.test(line);
}

/** Reads a ring line by line, and tries an incomplete line each time it grows. */
class LineReader {
  readonly #ring: OutputRing;
  #offset = 0;
  #partial = "";
  #decoder = new StringDecoder("utf8");

  constructor(ring: OutputRing) {
    this.#ring = ring;
  }

  get atEnd(): boolean {
    return this.#ring.closed && this.#offset === this.#ring.endOffset;
  }

  find(matches: (line: string) => boolean, pattern: string): string | null {
    while (this.#offset < this.#ring.endOffset) {
      const { offset, bytes } = this.#ring.read(this.#offset, READ_BYTES);
      if (offset > this.#offset) this.#partial = "";
      this.#offset = offset + bytes.length;
      const lines = (this.#partial + this.#decoder.write(bytes)).split("\n");
      const found = guarded(pattern, () => lines.find((line) => matches(line)));
      if (found !== undefined) return found;
      this.#partial = (lines.at(-1) ?? "").slice(-LINE_MAX_CHARS);
    }
    return null;
  }
}
