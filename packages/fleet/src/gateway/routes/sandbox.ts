/** Inside a thread's sandbox: persistent shells, processes, terminals, listening ports. */

import {
  outputSoFarQuerySchema,
  outputSoFarSchema,
  portListSchema,
  portParamsSchema,
  portWaitRequestSchema,
  processListSchema,
  SandlotError,
  type SessionOptions,
  sessionExecRequestSchema,
  sessionExecResultSchema,
  sessionIdSchema,
  sessionInfoSchema,
  sessionListSchema,
  sessionRequestSchema,
  terminalIdSchema,
  terminalInfoSchema,
  terminalListSchema,
  terminalRequestSchema,
  threadIdSchema,
  threadParamsSchema,
  usageSchema,
} from "@sandlot/contract";
import { z } from "zod";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { sendLargeJson } from "../streams/large-json.ts";
import { THREAD_ERRORS } from "./answers.ts";
import { resultLimit } from "./exec.ts";
import { outputOptions } from "./execs.ts";

const sessionParamsSchema = z.strictObject({ thread: threadIdSchema, sessionId: sessionIdSchema });
const terminalParamsSchema = z.strictObject({ thread: threadIdSchema, terminalId: terminalIdSchema });

export function insideRoutes(app: GatewayApp, context: GatewayContext): void {
  sessionRoutes(app, context);
  const { threads } = context;

  app.get(
    "/v1/threads/:thread/processes",
    {
      config: { access: "thread", purpose: "processes" },
      schema: {
        summary: "Processes of the sandbox",
        tags: ["inside"],
        params: threadParamsSchema,
        response: { 200: processListSchema, ...THREAD_ERRORS },
      },
    },
    (request, reply) =>
      threads.withExisting(
        request,
        reply,
        async (sandbox) => ({ processes: [...(await sandbox.processes())] }),
        () => ({ processes: [] }),
      ),
  );

  app.get(
    "/v1/threads/:thread/usage",
    {
      config: { access: "thread", purpose: "usage" },
      schema: {
        summary: "What the sandbox uses",
        tags: ["inside"],
        params: threadParamsSchema,
        response: { 200: usageSchema, ...THREAD_ERRORS },
      },
    },
    (request, reply) =>
      threads.withExisting(
        request,
        reply,
        (sandbox) => sandbox.usage(),
        () => {
          throw new SandlotError("sandbox_not_found", { id: `of thread ${request.params.thread}` });
        },
      ),
  );

  app.get(
    "/v1/threads/:thread/ports",
    {
      config: { access: "thread", purpose: "ports" },
      schema: {
        summary: "Ports on which something listens",
        tags: ["ports"],
        params: threadParamsSchema,
        response: { 200: portListSchema, ...THREAD_ERRORS },
      },
    },
    (request, reply) =>
      threads.withExisting(
        request,
        reply,
        async (sandbox) => ({ ports: [...(await sandbox.ports.list())] }),
        () => ({ ports: [] }),
      ),
  );

  app.post(
    "/v1/threads/:thread/ports/:port/wait",
    {
      config: { access: "thread", purpose: "wait for port" },
      schema: {
        summary: "Wait until something accepts connections",
        tags: ["ports"],
        params: portParamsSchema,
        body: portWaitRequestSchema,
        response: { 204: z.null(), ...THREAD_ERRORS },
      },
    },
    (request, reply) =>
      threads.with(request, reply, async (sandbox, _lease, signal) => {
        await sandbox.ports.waitFor(request.params.port, { timeoutMs: request.body.timeoutMs, signal });
        return reply.code(204).send(null);
      }),
  );

  app.get(
    "/v1/threads/:thread/terminals",
    {
      config: { access: "thread", purpose: "terminals" },
      schema: {
        summary: "Open terminals",
        tags: ["terminal"],
        params: threadParamsSchema,
        response: { 200: terminalListSchema, ...THREAD_ERRORS },
      },
    },
    (request, reply) =>
      threads.withExisting(
        request,
        reply,
        async (sandbox) => ({
          terminals: (await sandbox.terminals.list()).map((one) => ({ ...one, command: [...one.command] })),
        }),
        () => ({ terminals: [] }),
      ),
  );

  app.post(
    "/v1/threads/:thread/terminals",
    {
      config: { access: "thread", purpose: "open terminal" },
      schema: {
        summary: "Open a terminal, to be attached to with its id",
        tags: ["terminal"],
        params: threadParamsSchema,
        body: terminalRequestSchema,
        response: { 201: terminalInfoSchema, ...THREAD_ERRORS },
      },
    },
    (request, reply) =>
      threads.with(request, reply, async (sandbox) => {
        const { columns, rows, terminalId, command, cwd, env } = request.body;
        const terminal = await sandbox.terminals.open({
          columns,
          rows,
          ...(terminalId === undefined ? {} : { terminalId }),
          ...(command === undefined ? {} : { command }),
          ...(cwd === undefined ? {} : { cwd }),
          ...(env === undefined ? {} : { env }),
        });
        await terminal.detach();
        const info = (await sandbox.terminals.list()).find((one) => one.terminalId === terminal.terminalId);
        // A terminal whose program has already ended is no longer listed.
        const { createdAt = context.world.wallMs(), attachedCount = 0 } = info ?? {};
        const opened = { columns, rows, createdAt, attachedCount, command: [...(info?.command ?? command ?? [])] };
        return reply.code(201).send({ terminalId: terminal.terminalId, ...opened });
      }),
  );

  app.delete(
    "/v1/threads/:thread/terminals/:terminalId",
    {
      config: { access: "thread", purpose: "hang up" },
      schema: {
        summary: "Hang up a terminal; one that is not there is fine",
        tags: ["terminal"],
        params: terminalParamsSchema,
        response: { 204: z.null(), ...THREAD_ERRORS },
      },
    },
    async (request, reply) => {
      const close = async () => undefined;
      await threads.withExisting<unknown>(
        request,
        reply,
        (sandbox) => sandbox.terminals.close(request.params.terminalId),
        close,
      );
      return reply.code(204).send(null);
    },
  );
}

function sessionRoutes(app: GatewayApp, context: GatewayContext): void {
  const { threads } = context;
  app.post(
    "/v1/threads/:thread/sessions",
    {
      config: { access: "thread", purpose: "session" },
      schema: {
        summary: "Open a persistent shell, or find the one with this id",
        tags: ["sessions"],
        params: threadParamsSchema,
        body: sessionRequestSchema,
        response: { 201: sessionInfoSchema, ...THREAD_ERRORS },
      },
    },
    (request, reply) =>
      threads.with(request, reply, async (sandbox) => {
        const { sessionId, cwd, env } = request.body;
        const options: SessionOptions = {
          ...(sessionId === undefined ? {} : { sessionId }),
          ...(cwd === undefined ? {} : { cwd }),
          ...(env === undefined ? {} : { env }),
        };
        return reply.code(201).send(await sandbox.sessions.open(options));
      }),
  );

  app.get(
    "/v1/threads/:thread/sessions",
    {
      config: { access: "thread", purpose: "sessions" },
      schema: {
        summary: "Open persistent shells",
        tags: ["sessions"],
        params: threadParamsSchema,
        response: { 200: sessionListSchema, ...THREAD_ERRORS },
      },
    },
    (request, reply) =>
      threads.withExisting(
        request,
        reply,
        async (sandbox) => ({ sessions: [...(await sandbox.sessions.list())] }),
        () => ({ sessions: [] }),
      ),
  );

  app.post(
    "/v1/threads/:thread/sessions/:sessionId/exec",
    {
      config: { access: "thread", purpose: "session exec" },
      schema: {
        summary: "Run a command in a persistent shell",
        tags: ["sessions"],
        params: sessionParamsSchema,
        body: sessionExecRequestSchema,
        response: { 200: sessionExecResultSchema, ...THREAD_ERRORS },
      },
    },
    (request, reply) =>
      threads.with(request, reply, async (sandbox, _lease, signal) => {
        const { command, stdin, stdinBase64, timeoutMs } = request.body;
        const content = stdinBase64 === undefined ? stdin : Buffer.from(stdinBase64, "base64");
        const result = await sandbox.sessions.exec(request.params.sessionId, command, {
          signal,
          outputMaxBytes: resultLimit(request.body, context.settings),
          ...(content === undefined ? {} : { stdin: content }),
          ...(timeoutMs === undefined ? {} : { timeoutMs }),
        });
        return sendLargeJson(reply.code(200), result);
      }),
  );

  app.get(
    "/v1/threads/:thread/sessions/:sessionId/output",
    {
      config: { access: "thread", purpose: "session output" },
      schema: {
        summary: "What the command in a persistent shell has printed until now",
        description:
          "Answers at once, also while it runs; when none runs, with what the last one printed, until the next begins. " +
          "Go on with the `nextOffset` of each stream.",
        tags: ["sessions"],
        params: sessionParamsSchema,
        querystring: outputSoFarQuerySchema,
        response: { 200: outputSoFarSchema, ...THREAD_ERRORS },
      },
    },
    (request, reply) => {
      const { sessionId } = request.params;
      return threads.withExisting(
        request,
        reply,
        async (sandbox, _lease, signal) => {
          const options = { ...outputOptions(request.query, context.settings), signal };
          return sendLargeJson(reply.code(200), await sandbox.sessions.output(sessionId, options));
        },
        () => {
          throw new SandlotError("session_not_found", { sessionId });
        },
      );
    },
  );

  app.delete(
    "/v1/threads/:thread/sessions/:sessionId",
    {
      config: { access: "thread", purpose: "close session" },
      schema: {
        summary: "End a persistent shell; one that is not there is fine",
        tags: ["sessions"],
        params: sessionParamsSchema,
        response: { 204: z.null(), ...THREAD_ERRORS },
      },
    },
    async (request, reply) => {
      const nothing = async () => undefined;
      await threads.withExisting<unknown>(
        request,
        reply,
        (sandbox) => sandbox.sessions.close(request.params.sessionId),
        nothing,
      );
      return reply.code(204).send(null);
    },
  );
}
