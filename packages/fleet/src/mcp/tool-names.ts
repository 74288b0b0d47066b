/** The names of the MCP server's tools. */

import { OPTIONAL_TOOLS, SANDBOX_TOOLS } from "@sandlot/client/tools";
import { SandlotError } from "@sandlot/contract";

/** For documentation and for filters of tools. */
export const MCP_TOOL_NAMES: readonly string[] = [...SANDBOX_TOOLS, ...OPTIONAL_TOOLS].map(({ name }) => name);

/** Refuses unknown tool names, which would otherwise silently offer nothing. */
export function checkToolNames(names: readonly string[] | undefined): void {
  const unknown = names?.find((name) => !MCP_TOOL_NAMES.includes(name));
  if (unknown === undefined) return;
  const problem = `there is no tool ${unknown}; there are ${MCP_TOOL_NAMES.join(", ")}`;
  throw new SandlotError("invalid_request", { field: "tools", problem });
}
