/**
 * Commands: run and wait, run and stream, or start in the background.
 *
 * - Waiting: the command ends when its caller disconnects, unless the caller chose the `execId` and may come back.
 * - Streaming and in the background: the command is independent; after a lost connection the caller follows it by its
 *   id.
 */

import {
  type ExecOptions,
  type ExecRequestBody,
  execRequestSchema,
  execResultSchema,
  pickExecOptions,
  pickSpawnOptions,
  SANDBOX_LIMITS,
  type Sandbox,
  SandlotError,
  type SpawnOptions,
  spawnedExecSchema,
  threadParamsSchema,
} from "@sandlot/contract";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { GatewaySettings } from "../../config/gateway-settings.ts";
import type { GatewayApp, GatewayContext } from "../context.ts";
import { sendLargeJson } from "../streams/large-json.ts";
import { THREAD_ERRORS } from "./answers.ts";
import { sendExecStream } from "./exec-stream.ts";

export function execRoutes(app: GatewayApp, context: GatewayContext): void {
  const { threads, metrics, settings, dashboard } = context;

  app.post(
    "/v1/threads/:thread/exec",
    {
      config: { access: "thread", purpose: "exec" },
      schema: {
        summary: "Run a command",
        description:
          "Answers when it has ended; with `background` at once; with `Accept: text/event-stream` as it prints: " +
          "events `start`, `stdout`, `stderr`, `gap`, `exit`.",
        tags: ["exec"],
        params: threadParamsSchema,
        body: execRequestSchema,
        response: { 200: execResultSchema, 202: spawnedExecSchema, ...THREAD_ERRORS },
      },
    },
    (request, reply) => {
      const { body } = request;
      return threads.with(request, reply, async (sandbox, lease, signal) => {
        const command = commandOf(body);
        if (body.background === true) {
          const keepStdinOpen = body.keepStdinOpen ?? stdinOf(body) === undefined;
          const { execId, pid } = await sandbox.spawn(command, { ...spawnOptionsOf(body), keepStdinOpen });
          return reply.code(202).send({ execId, pid });
        }
        if (wantsEventStream(request)) return streamExec(context, request, reply, sandbox, command);
        if (body.output === "hold") {
          const problem = "a command that is waited for has no reader to wait for; ask for events, or set `background`";
          throw new SandlotError("invalid_request", { field: "output", problem });
        }
        const followed = body.execId === undefined ? { signal } : {};
        const outputMaxBytes = resultLimit(body, settings);
        const result = await sandbox.exec(command, { ...execOptionsOf(body), ...followed, outputMaxBytes });
        metrics.exec(result.status, result.durationMs);
        dashboard.facts.exec(result.status);
        if (lease.recovery.kind !== "same") reply.header("x-sandlot-recovery", lease.recovery.kind);
        return sendLargeJson(reply.code(200), result);
      });
    },
  );
}

export function wantsEventStream(request: FastifyRequest): boolean {
  return (request.headers.accept ?? "").toLowerCase().includes("text/event-stream");
}

/** At most the gateway's limit. */
export function resultLimit(body: { readonly outputMaxBytes?: number | undefined }, settings: GatewaySettings): number {
  return Math.min(body.outputMaxBytes ?? SANDBOX_LIMITS.execResultMaxBytes, settings.execResultMaxBytes);
}

async function streamExec(
  context: GatewayContext,
  request: FastifyRequest,
  reply: FastifyReply,
  sandbox: Sandbox,
  command: string | readonly string[],
): Promise<FastifyReply> {
  const body = request.body as ExecRequestBody;
  const keepStdinOpen = body.keepStdinOpen ?? false;
  const started = await sandbox.spawn(command, { ...spawnOptionsOf(body), keepStdinOpen });
  const start = { ...started, sandboxId: sandbox.id, generation: sandbox.generation };
  const from = { stdout: 0, stderr: 0 };
  const order = { execId: started.execId, start, from, until: "exit" as const, isHeld: body.output === "hold" };
  return sendExecStream(context, request, reply, sandbox, order);
}

function commandOf({ command, argv }: ExecRequestBody): string | readonly string[] {
  return command ?? argv ?? [];
}

function execOptionsOf(body: ExecRequestBody): ExecOptions {
  return { ...pickExecOptions(body), ...givenStdin(body) };
}

function spawnOptionsOf(body: ExecRequestBody): SpawnOptions {
  return { ...pickSpawnOptions(body), ...givenStdin(body) };
}

function givenStdin(body: ExecRequestBody): Pick<ExecOptions, "stdin"> {
  const stdin = stdinOf(body);
  return stdin === undefined ? {} : { stdin };
}

function stdinOf({ stdin, stdinBase64 }: ExecRequestBody): string | Uint8Array | undefined {
  return stdinBase64 === undefined ? stdin : Buffer.from(stdinBase64, "base64");
}
