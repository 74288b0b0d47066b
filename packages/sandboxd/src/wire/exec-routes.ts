/**
 * Commands over the wire.
 */

import type { IncomingMessage, ServerResponse } from "node:http";
import { EXEC_SIGNALS, SandlotError } from "@sandlot/contract";
import { checkExecCall } from "../exec/command.ts";
import type { Exec } from "../exec/exec.ts";
import type { ExecTable } from "../exec/exec-table.ts";
import { follow } from "../exec/follow.ts";
import { waitForOutput, waitForPort } from "../exec/wait.ts";
import {
  checkPort,
  duration,
  flag,
  integer,
  invalid,
  readBody,
  readJson,
  readLineAndBytes,
  sendJson,
  text,
} from "./body.ts";
import { sendResult } from "./result.ts";
import type { Routes } from "./routes.ts";

export function execRoutes(execs: ExecTable): Routes {
  return {
    "POST /sandlot/exec": async (request, response) => {
      const { exec, repeatable, outputMaxBytes } = await start(execs, request, false);
      // A caller that cannot come back for the result does not need the command either.
      if (!repeatable) endWithCaller(exec, response);
      await exec.ended;
      if (response.destroyed) return;
      if (outputMaxBytes === undefined) return sendJson(response, exec.result());
      const [stdout, stderr] = [exec.stdout.tail(outputMaxBytes), exec.stderr.tail(outputMaxBytes)];
      // Its caller may come back for the rest.
      if (stdout.omittedBytes + stderr.omittedBytes > 0) execs.remember(exec);
      sendResult(response, { execId: exec.id, ...exec.settled }, stdout, stderr);
    },

    "POST /sandlot/spawn": async (request, response) => {
      const { exec } = await start(execs, request, true);
      sendJson(response, { execId: exec.id, pid: exec.pid });
    },

    "GET /sandlot/execs": (_request, response) => sendJson(response, execs.list()),

    "POST /sandlot/exec/signal": async (request, response) => {
      const fields = await readJson(request);
      const name = EXEC_SIGNALS.find((known) => known === fields.signal);
      if (name === undefined) throw invalid("signal", `it is none of ${EXEC_SIGNALS.join(", ")}`);
      sendJson(response, { found: execs.peek(text(fields, "execId"))?.signal(name) ?? false });
    },

    "POST /sandlot/exec/stdin": async (request, response, query) => {
      const bytes = await readBody(request);
      const { id, stdin } = execs.find(text(query, "execId"));
      if (stdin === null) throw new SandlotError("stdin_closed", { execId: id });
      await stdin.write(bytes, query.end === "1");
      sendJson(response, {});
    },

    "POST /sandlot/exec/kill": async (request, response) => {
      const found = await execs.kill(text(await readJson(request), "execId"));
      sendJson(response, { found });
    },

    "GET /sandlot/exec/follow": async (_request, response, query) => {
      const exec = execs.find(text(query, "execId"));
      const from = { stdout: integer(query, "stdout", 0) ?? 0, stderr: integer(query, "stderr", 0) ?? 0 };
      const until = query.until === "closed" ? "closed" : "exit";
      await follow(exec, from, { until, hold: query.hold !== "0" }, response);
    },

    "POST /sandlot/wait/port": async (request, response) => {
      const fields = await readJson(request);
      await waitForPort(checkPort(fields), {
        timeoutMs: duration(fields, "timeoutMs"),
        isAbandoned: () => response.destroyed,
      });
      sendJson(response, {});
    },

    "POST /sandlot/wait/output": async (request, response) => {
      const fields = await readJson(request);
      const exec = execs.find(text(fields, "execId"));
      const waiting = { timeoutMs: duration(fields, "timeoutMs"), isAbandoned: () => response.destroyed };
      sendJson(response, await waitForOutput(exec, text(fields, "pattern"), flag(fields, "literal"), waiting));
    },
  };
}

async function start(
  execs: ExecTable,
  request: IncomingMessage,
  remember: boolean,
): Promise<{ exec: Exec; repeatable: boolean; outputMaxBytes: number | undefined }> {
  const { line, bytes } = await readLineAndBytes(request);
  const call = checkExecCall(line);
  const exec = await execs.start(call, call.hasStdin ? bytes : null, { remember: remember || call.repeatable });
  return { exec, repeatable: call.repeatable, outputMaxBytes: call.outputMaxBytes };
}

function endWithCaller(exec: Exec, response: ServerResponse): void {
  response.on("close", () => {
    if (!response.writableFinished && !exec.hasEnded) void exec.end("killed");
  });
}
