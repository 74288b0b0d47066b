/**
 * Follows an exec: its output from given offsets on, then its end, as frames (see the wire in `@sandlot/contract`).
 *
 * A follower reads from the rings at its own pace. It gets no more than its connection takes; when it falls behind by
 * more than a ring holds, a gap states exactly which bytes are gone. So a slow follower slows down only a command that
 * waits for its followers (`output-hold.ts`).
 */

import type { ServerResponse } from "node:http";
import { type FollowEnd, type FollowOptions, FRAME, FRAME_HEADER_BYTES } from "@sandlot/contract";
import type { Exec } from "./exec.ts";
import type { OutputRing } from "./output-ring.ts";

interface Cursor {
  readonly ring: OutputRing;
  readonly type: number;
  readonly gapType: number;
  offset: number;
}

const PART_BYTES = 64 * 1024;

export async function follow(
  exec: Exec,
  from: { stdout: number; stderr: number },
  { until, hold }: Required<Pick<FollowOptions, "until" | "hold">>,
  response: ServerResponse,
): Promise<void> {
  const cursors: Cursor[] = [
    { ring: exec.stdout, type: FRAME.stdout, gapType: FRAME.stdoutGap, offset: from.stdout },
    { ring: exec.stderr, type: FRAME.stderr, gapType: FRAME.stderrGap, offset: from.stderr },
  ];
  const bell = new Bell();
  const holds = hold ? (exec.holds ?? []) : [];
  const stops = cursors.map(({ ring }) => ring.listen(() => bell.ring()));
  void exec.ended.then(() => bell.ring());
  response.on("close", () => bell.ring());
  response.on("drain", () => bell.ring());
  response.writeHead(200, { "content-type": "application/octet-stream" });
  response.flushHeaders();
  stops.push(...holds.map((each, index) => each.attach(cursors[index] as Cursor)));
  try {
    while (!response.destroyed) {
      // Read before sending: later output goes out on the next round, so none is left out.
      const over = until === "exit" ? exec.hasEnded : !exec.isOpen;
      const idle = cursors.map((cursor) => sendPart(cursor, response)).every((sent) => !sent);
      for (const each of holds) each.moved();
      if (response.writableNeedDrain) await bell.wait();
      else if (idle && over) break;
      else if (idle) await bell.wait();
    }
    if (!response.destroyed) response.end(frame(FRAME.end, 0, Buffer.from(JSON.stringify(endOf(exec)))));
  } finally {
    for (const stop of stops) stop();
  }
}

/** Sends the next part of one stream; `false` when there was none. */
function sendPart(cursor: Cursor, response: ServerResponse): boolean {
  if (response.writableNeedDrain || cursor.offset >= cursor.ring.endOffset) return false;
  const { offset, bytes } = cursor.ring.read(cursor.offset, PART_BYTES);
  if (offset > cursor.offset) response.write(frame(cursor.gapType, offset, Buffer.alloc(0)));
  response.write(frame(cursor.type, offset, bytes));
  cursor.offset = offset + bytes.length;
  return true;
}

function frame(type: number, offset: number, payload: Buffer): Buffer {
  const header = Buffer.allocUnsafe(FRAME_HEADER_BYTES);
  header.writeUInt8(type, 0);
  header.writeBigUInt64BE(BigInt(offset), 1);
  header.writeUInt32BE(payload.length, 9);
  return Buffer.concat([header, payload]);
}

function endOf(exec: Exec): FollowEnd {
  const { status = "lost", exitCode = null, signal = null, durationMs = 0 } = exec.outcome ?? {};
  const { id: execId, stdout, stderr } = exec;
  const sizes = { stdoutBytes: stdout.endOffset, stderrBytes: stderr.endOffset };
  return { execId, status, exitCode, signal, ...sizes, durationMs };
}

/** Wakes a waiting caller; when none waits, the next wait ends at once. */
class Bell {
  #rung = false;
  #wake: (() => void) | null = null;

  ring(): void {
    this.#rung = true;
    this.#wake?.();
  }

  async wait(): Promise<void> {
    if (!this.#rung) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    this.#rung = false;
    this.#wake = null;
  }
}
