/** Terminals over the wire, except their content (`terminal-socket.ts`). */

import { checkCommand, checkEnvironment, checkId } from "../exec/command.ts";
import { checkPath } from "../files/paths.ts";
import type { TerminalTable } from "../terminals/terminal-table.ts";
import { integer, invalid, readJson, sendJson, text } from "./body.ts";
import type { Routes } from "./routes.ts";

/** The kernel keeps both in 16 bits. */
const SIZE_MAX = 65_535;

export function terminalRoutes(terminals: TerminalTable): Routes {
  return {
    "GET /sandlot/terminals": (_request, response) => sendJson(response, terminals.list()),

    "POST /sandlot/terminals/open": async (request, response) => {
      const fields = await readJson(request);
      const { terminalId, command, cwd, env = {} } = fields;
      const params = {
        command: command === undefined ? null : list(command),
        cwd: cwd === undefined ? null : checkPath(cwd),
        env: checkEnvironment(env),
        ...checkSize(fields),
      };
      const id = terminalId === undefined ? null : checkId(terminalId, "terminalId");
      sendJson(response, terminals.open(id, params));
    },

    "POST /sandlot/terminals/close": async (request, response) => {
      sendJson(response, { found: await terminals.close(text(await readJson(request), "terminalId")) });
    },
  };
}

export function checkSize(fields: Readonly<Record<string, unknown>>): { columns: number; rows: number } {
  const size = (name: string): number => {
    const value = integer(fields, name, 1);
    if (value === undefined || value > SIZE_MAX) throw invalid(name, `it is not a whole number from 1 to ${SIZE_MAX}`);
    return value;
  };
  return { columns: size("columns"), rows: size("rows") };
}

function list(command: unknown): readonly string[] {
  const checked = checkCommand(command);
  if (typeof checked === "string") throw invalid("command", "it is not a list");
  return checked;
}
