/** Commands by their id: list, output, signals, stdin. None of these creates a sandbox. */

import {
  type ExecInfo,
  execIdSchema,
  execListSchema,
  execOutputQuerySchema,
  foundSchema,
  isSandlotError,
  type OutputOptions,
  outputSoFarQuerySchema,
  outputSoFarSchema,
  type Sandbox,
  signalReplySchema,
  signalRequestSchema,
  stdinRequestSchema,
  threadIdSchema,
  threadParamsSchema,
  waitForOutputReplySchema,
  waitForOutputRequestSchema,
} from "@sandlot/contract";
import type { FastifyReply, FastifyRequest } from "fastify";
import { z } from "zod";
import type { GatewaySettings } from "../../config/gateway-settings.ts";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { streamed } from "../streams/bytes.ts";
import { sendLargeJson } from "../streams/large-json.ts";
import { CallerGone, execNotFound, goneSignal, purposeOf, threadOf } from "../thread-use.ts";
import { THREAD_ERRORS } from "./answers.ts";
import { resultLimit, wantsEventStream } from "./exec.ts";
import { positionOf, sendExecStream } from "./exec-stream.ts";

const execParamsSchema = z.strictObject({ thread: threadIdSchema, execId: execIdSchema });

export function execsRoutes(app: GatewayApp, context: GatewayContext): void {
  const { threads, settings } = context;

  app.get(
    "/v1/threads/:thread/execs",
    {
      config: { access: "thread", purpose: "execs" },
      schema: {
        summary: "Commands that run, and those that ended and are still remembered",
        tags: ["exec"],
        params: threadParamsSchema,
        response: { 200: execListSchema, ...THREAD_ERRORS },
      },
    },
    (request, reply) =>
      threads.withExisting(
        request,
        reply,
        async (sandbox) => ({
          execs: (await sandbox.execs.list()).map(({ command, ...rest }) => ({
            ...rest,
            command: typeof command === "string" ? command : [...command],
          })),
        }),
        () => ({ execs: [] }),
      ),
  );

  app.get(
    "/v1/threads/:thread/execs/:execId",
    {
      config: { access: "thread", purpose: "output" },
      schema: {
        summary: "What a command has printed until now",
        description: "Answers at once, also while it runs. Go on with the `nextOffset` of each stream.",
        tags: ["exec"],
        params: execParamsSchema,
        querystring: outputSoFarQuerySchema,
        response: { 200: outputSoFarSchema, ...THREAD_ERRORS },
      },
    },
    (request, reply) => {
      const { execId } = request.params;
      return threads.withExisting(
        request,
        reply,
        async (sandbox, _lease, signal) => {
          const output = await sandbox.execs.output(execId, { ...outputOptions(request.query, settings), signal });
          return sendLargeJson(reply.code(200), output);
        },
        () => execNotFound(execId),
      );
    },
  );

  app.get(
    "/v1/threads/:thread/execs/:execId/output",
    {
      config: { access: "thread", purpose: "output" },
      schema: {
        summary: "Output from an offset on, until the command ends",
        description:
          "With `Accept: text/event-stream` both streams as events, also from `Last-Event-ID` on; otherwise the raw " +
          "bytes of one of them.",
        tags: ["exec"],
        params: execParamsSchema,
        querystring: execOutputQuerySchema,
        response: { 200: z.any().describe("Bytes, or events."), ...THREAD_ERRORS },
      },
    },
    async (request, reply) => {
      const { execId } = request.params;
      const { stdoutOffset, stderrOffset, stream, until } = request.query;
      const hold = request.query.hold === "true";
      const from = positionOf(request.headers["last-event-id"]) ?? { stdout: stdoutOffset, stderr: stderrOffset };
      if (!wantsEventStream(request)) return sendRaw(context, request, reply, { execId, from, stream, until, hold });
      return threads.withExisting(
        request,
        reply,
        async (sandbox) => {
          const isHeld = hold && (await known(sandbox, execId)).output === "hold";
          return sendExecStream(context, request, reply, sandbox, { execId, from, until, isHeld });
        },
        () => execNotFound(execId),
      );
    },
  );

  app.post(
    "/v1/threads/:thread/execs/:execId/signal",
    {
      config: { access: "thread", purpose: "signal" },
      schema: {
        summary: "Send a signal to a command's process group",
        tags: ["exec"],
        params: execParamsSchema,
        body: signalRequestSchema,
        response: { 200: signalReplySchema, ...THREAD_ERRORS },
      },
    },
    (request, reply) => {
      const { execId } = request.params;
      return threads.withExisting(
        request,
        reply,
        async (sandbox) => {
          const delivered = await sandbox.execs.signal(execId, request.body.signal);
          if (!delivered) await known(sandbox, execId);
          return { delivered };
        },
        () => execNotFound(execId),
      );
    },
  );

  app.post(
    "/v1/threads/:thread/execs/:execId/kill",
    {
      config: { access: "thread", purpose: "kill" },
      schema: {
        summary: "End a command and everything it has started",
        tags: ["exec"],
        params: execParamsSchema,
        response: { 200: foundSchema, ...THREAD_ERRORS },
      },
    },
    (request, reply) =>
      threads.withExisting(
        request,
        reply,
        async (sandbox) => ({ found: await sandbox.execs.kill(request.params.execId) }),
        () => ({ found: false }),
      ),
  );

  app.post(
    "/v1/threads/:thread/execs/:execId/stdin",
    {
      config: { access: "thread", purpose: "stdin" },
      schema: {
        summary: "Write to a command's stdin",
        tags: ["exec"],
        params: execParamsSchema,
        body: stdinRequestSchema,
        response: { 204: z.null(), ...THREAD_ERRORS },
      },
    },
    (request, reply) => {
      const { execId } = request.params;
      const { data, base64, end } = request.body;
      const content = base64 === undefined ? (data ?? "") : Buffer.from(base64, "base64");
      return threads.withExisting(
        request,
        reply,
        async (sandbox) => {
          await sandbox.execs.writeStdin(execId, content, { end: end ?? false }).catch((error: unknown) => {
            // Closing a closed stdin succeeds: otherwise a caller whose input ends after the command would get a
            // conflict.
            const onlyCloses = end === true && content.length === 0;
            if (!onlyCloses || !isSandlotError(error, "stdin_closed")) throw error;
          });
          return reply.code(204).send(null);
        },
        () => execNotFound(execId),
      );
    },
  );

  app.post(
    "/v1/threads/:thread/execs/:execId/wait",
    {
      config: { access: "thread", purpose: "wait for output" },
      schema: {
        summary: "Wait until a line of output matches",
        tags: ["exec"],
        params: execParamsSchema,
        body: waitForOutputRequestSchema,
        response: { 200: waitForOutputReplySchema, ...THREAD_ERRORS },
      },
    },
    (request, reply) => {
      const { execId } = request.params;
      const { pattern, literal, timeoutMs } = request.body;
      return threads.withExisting(
        request,
        reply,
        (sandbox, _lease, signal) =>
          sandbox.execs.waitForOutput(execId, pattern, { timeoutMs, signal, literal: literal ?? false }),
        () => execNotFound(execId),
      );
    },
  );
}

/** At most the gateway's limit. */
export function outputOptions(query: z.infer<typeof outputSoFarQuerySchema>, settings: GatewaySettings): OutputOptions {
  const { stdoutOffset: stdout, stderrOffset: stderr, maxBytes } = query;
  return { from: { stdout, stderr }, maxBytes: resultLimit({ outputMaxBytes: maxBytes }, settings) };
}

interface RawOrder {
  readonly execId: string;
  readonly from: { readonly stdout: number; readonly stderr: number };
  readonly stream: "stdout" | "stderr";
  readonly until: "exit" | "closed";
  readonly hold: boolean;
}

async function sendRaw(context: GatewayContext, request: FastifyRequest, reply: FastifyReply, order: RawOrder) {
  const { threads } = context;
  const key = threadOf(request);
  if ((await threads.find(key)) === null) execNotFound(order.execId);
  const signal = goneSignal(reply);
  const lease = await threads.acquire(key, purposeOf(request), signal);
  const body = await streamed(rawOutput(lease.sandbox, order, signal), () => threads.release(lease));
  return reply.header("content-type", "application/octet-stream").send(body);
}

async function* rawOutput(sandbox: Sandbox, { execId, from, stream, until, hold }: RawOrder, signal: AbortSignal) {
  await known(sandbox, execId);
  try {
    for await (const event of sandbox.execs.follow(execId, { from, until, hold, signal }))
      if (event.type === "output" && event.stream === stream) yield event.bytes;
  } catch (error) {
    if (!(error instanceof CallerGone)) throw error;
  }
}

async function known(sandbox: Sandbox, execId: string): Promise<ExecInfo> {
  const execs = await sandbox.execs.list();
  return execs.find((one) => one.execId === execId) ?? execNotFound(execId);
}
