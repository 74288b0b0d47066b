/**
 * Sessions over the wire.
 */

import { OUTPUT_MIN_BYTES, SANDBOX_LIMITS } from "@sandlot/contract";
import { checkEnvironment, checkId, checkOutputMax, checkTimeout } from "../exec/command.ts";
import { checkPath } from "../files/paths.ts";
import type { SessionTable } from "../sessions/session-table.ts";
import { integer, invalid, readJson, readLineAndBytes, sendJson, text } from "./body.ts";
import { sendOutput, sendResult } from "./result.ts";
import type { Routes } from "./routes.ts";

export function sessionRoutes(sessions: SessionTable): Routes {
  return {
    "GET /sandlot/sessions": (_request, response) => sendJson(response, sessions.list()),

    "POST /sandlot/sessions/open": async (request, response) => {
      const { sessionId, cwd, env = {} } = await readJson(request);
      const params = {
        sessionId: sessionId === undefined ? null : checkId(sessionId, "sessionId"),
        cwd: cwd === undefined ? null : checkPath(cwd),
        env: checkEnvironment(env),
      };
      sendJson(response, sessions.open(params));
    },

    "POST /sandlot/sessions/exec": async (request, response) => {
      const { line, bytes } = await readLineAndBytes(request);
      const command = text(line, "command");
      if (command.includes("\0")) throw invalid("command", "it contains a NUL byte");
      const result = await sessions.find(text(line, "sessionId")).exec({
        command,
        stdin: line.hasStdin === true ? bytes : null,
        timeoutMs: line.timeoutMs === undefined ? SANDBOX_LIMITS.execTimeoutMs : checkTimeout(line.timeoutMs),
        ...(line.outputMaxBytes !== undefined && { outputMaxBytes: checkOutputMax(line.outputMaxBytes) }),
        isAbandoned: () => response.destroyed,
        onAbandoned: (listener) => response.on("close", listener),
      });
      if (response.destroyed) return;
      const { stdout, stderr, ...outcome } = result;
      if (line.outputMaxBytes !== undefined) return sendResult(response, outcome, stdout, stderr);
      const dropped = { stdoutDroppedBytes: stdout.droppedBytes, stderrDroppedBytes: stderr.droppedBytes };
      const texts = { stdout: stdout.bytes.toString("utf8"), stderr: stderr.bytes.toString("utf8") };
      sendJson(response, { ...outcome, ...texts, ...dropped });
    },

    "GET /sandlot/sessions/output": (_request, response, query) => {
      const maxBytes = integer(query, "maxBytes", OUTPUT_MIN_BYTES) ?? SANDBOX_LIMITS.execResultMaxBytes;
      if (maxBytes > SANDBOX_LIMITS.execOutputMaxBytes) throw invalid("maxBytes", "it is more than is ever held");
      const from = { stdout: integer(query, "stdout", 0) ?? 0, stderr: integer(query, "stderr", 0) ?? 0 };
      sendOutput(response, sessions.find(text(query, "sessionId")).output(from, maxBytes));
    },

    "POST /sandlot/sessions/close": async (request, response) => {
      sendJson(response, { found: await sessions.close(text(await readJson(request), "sessionId")) });
    },
  };
}
