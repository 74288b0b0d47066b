/**
 * The output of a command as events. The id of each has the offsets up to which everything was sent (`stdout.stderr`),
 * so that `Last-Event-ID` is enough to resume.
 *
 * When the gateway stops, the stream ends with `resume` and those offsets; the command goes on.
 */

import { type FollowOptions, type Sandbox, SandlotError } from "@sandlot/contract";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { GatewayContext } from "../context.ts";
import { SseStream } from "../streams/sse.ts";

export interface ExecStreamOrder {
  readonly execId: string;
  /** Data of the event `start`; absent when a stream is resumed. */
  readonly start?: unknown;
  readonly from: { readonly stdout: number; readonly stderr: number };
  readonly until: NonNullable<FollowOptions["until"]>;
  /** The command waits for this reader, so the reader may be slow. */
  readonly isHeld: boolean;
}

export async function sendExecStream(
  context: GatewayContext,
  request: FastifyRequest,
  reply: FastifyReply,
  sandbox: Sandbox,
  order: ExecStreamOrder,
): Promise<FastifyReply> {
  await context.streams.run(request.caller?.user ?? null, () => {
    const { world, settings } = context;
    const stallMs = order.isHeld ? settings.heldStallMs : settings.bodyStallMs;
    // A reader that is silent for so long may also be gone.
    if (order.isHeld) request.raw.socket.setKeepAlive(true, settings.bodyStallMs);
    const stream = new SseStream(request, reply, { world, settings, stallMs });
    return stream.fill(() => follow(context, sandbox, stream, order));
  });
  return reply;
}

async function follow(
  { dashboard, draining, metrics }: GatewayContext,
  sandbox: Sandbox,
  stream: SseStream,
  { execId, start, from, until, isHeld }: ExecStreamOrder,
): Promise<void> {
  const sent = { ...from };
  const position = () => `${sent.stdout}.${sent.stderr}`;
  if (start !== undefined) await stream.send("start", start, position());
  const signal = AbortSignal.any([stream.closed, draining]);
  try {
    for await (const event of sandbox.execs.follow(execId, { from, until, hold: isHeld, signal })) {
      if (event.type === "end") {
        metrics.exec(event.end.status, event.end.durationMs);
        dashboard.facts.exec(event.end.status);
        return await stream.send("exit", event.end, position());
      }
      if (event.type === "gap") {
        sent[event.stream] = event.toOffset;
        const { stream: name, fromOffset, toOffset } = event;
        await stream.send("gap", { stream: name, fromOffset, toOffset }, position());
      } else {
        sent[event.stream] = event.offset + event.bytes.byteLength;
        await stream.send(event.stream, outputOf(event), position());
      }
    }
  } catch (error) {
    if (stream.closed.aborted || !draining.aborted) throw error;
  }
  if (stream.closed.aborted) return;
  if (!draining.aborted) throw new SandlotError("internal", { problem: "the output ended without an end" });
  await stream.send("resume", { execId, stdoutOffset: sent.stdout, stderrOffset: sent.stderr }, position());
}

function outputOf({ stream, offset, bytes }: { stream: string; offset: number; bytes: Uint8Array }) {
  const base64 = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
  return { stream, offset, base64 };
}

/** The reader's position from `Last-Event-ID`; `null` when that is unusable. */
export function positionOf(lastEventId: unknown): { readonly stdout: number; readonly stderr: number } | null {
  const match = typeof lastEventId === "string" ? /^(\d{1,15})\.(\d{1,15})$/.exec(lastEventId) : null;
  return match === null ? null : { stdout: Number(match[1]), stderr: Number(match[2]) };
}
