/**
 * The fields that a request may have, by its route: those of its query, and those of its JSON.
 *
 * A request is read strictly. A fleet of a later version that asks for something this daemon does not know is told so, with the
 * field's name; to leave it out in silence would do something else than what was asked for.
 */

import type { IncomingMessage } from "node:http";
import { COMMAND_OPTION_NAMES, SandlotError } from "@sandlot/contract";

interface Fields {
  readonly query?: readonly string[];
  readonly json?: readonly string[];
}

const EXEC_CALL: Fields = { json: ["command", "repeatable", "hasStdin", ...COMMAND_OPTION_NAMES] };
const WRITE_QUERY = ["path", "mode", "ifVersion", "ifAbsent"];
const RANGE_QUERY = ["path", "offset", "length"];

/** A route that is not here takes no fields at all. */
const REQUEST_FIELDS: Readonly<Record<string, Fields>> = {
  "POST /sandlot/exec": EXEC_CALL,
  "POST /sandlot/spawn": EXEC_CALL,
  "POST /sandlot/exec/kill": { json: ["execId"] },
  "POST /sandlot/exec/signal": { json: ["execId", "signal"] },
  "POST /sandlot/exec/stdin": { query: ["execId", "end"] },
  "GET /sandlot/exec/follow": { query: ["execId", "stdout", "stderr", "until", "hold"] },
  "POST /sandlot/wait/port": { json: ["port", "timeoutMs"] },
  "POST /sandlot/wait/output": { json: ["execId", "pattern", "literal", "timeoutMs"] },
  "GET /sandlot/files/read": { query: [...RANGE_QUERY, "startLine", "endLine"] },
  "GET /sandlot/files/download": { query: RANGE_QUERY },
  "PUT /sandlot/files/write": { query: WRITE_QUERY },
  "GET /sandlot/files/upload": { query: WRITE_QUERY },
  "POST /sandlot/files/append": { query: ["path"] },
  "GET /sandlot/files/watch": { query: ["path", "recursive"] },
  "POST /sandlot/files/mkdir": { json: ["path"] },
  "POST /sandlot/files/rename": { json: ["from", "to"] },
  "POST /sandlot/files/remove": { json: ["path", "recursive"] },
  "POST /sandlot/files/stat": { json: ["path"] },
  "POST /sandlot/files/list": { json: ["path", "depth", "maxResults"] },
  "POST /sandlot/files/glob": { json: ["path", "pattern", "includeDirectories", "maxResults"] },
  "POST /sandlot/files/grep": { json: ["path", "pattern", "glob", "literal", "caseSensitive", "maxResults"] },
  "POST /sandlot/sessions/open": { json: ["sessionId", "cwd", "env"] },
  "POST /sandlot/sessions/exec": { json: ["sessionId", "command", "timeoutMs", "hasStdin", "outputMaxBytes"] },
  "GET /sandlot/sessions/output": { query: ["sessionId", "stdout", "stderr", "maxBytes"] },
  "POST /sandlot/sessions/close": { json: ["sessionId"] },
  "POST /sandlot/terminals/open": { json: ["terminalId", "command", "cwd", "env", "columns", "rows"] },
  "POST /sandlot/terminals/close": { json: ["terminalId"] },
  "GET /sandlot/terminals/attach": { query: ["terminalId", "fromOffset"] },
  "GET /sandlot/connect": { query: ["port"] },
  "POST /sandlot/rebind": { json: ["generation", "token", "hold", "expect"] },
};

export function checkQueryFields(request: IncomingMessage, query: object): void {
  checkKnown(fieldsOf(request).query ?? [], query);
}

export function checkJsonFields(request: IncomingMessage, fields: object): void {
  checkKnown(fieldsOf(request).json ?? [], fields);
}

function fieldsOf({ method, url = "" }: IncomingMessage): Fields {
  const end = url.indexOf("?");
  const name = `${method} ${end < 0 ? url : url.slice(0, end)}`;
  return Object.hasOwn(REQUEST_FIELDS, name) ? (REQUEST_FIELDS[name] ?? {}) : {};
}

function checkKnown(known: readonly string[], given: object): void {
  for (const field of Object.keys(given))
    if (!known.includes(field))
      throw new SandlotError("invalid_request", { field, problem: "this daemon does not know the field" });
}
