/** The names of the tools that the MCP server has. */

import { SANDBOX_TOOLS } from "@sandlot/client/tools";
import { SandlotError } from "@sandlot/contract";

/** The names of the tools, for whoever documents or limits them. */
export const MCP_TOOL_NAMES: readonly string[] = SANDBOX_TOOLS.map(({ name }) => name);

/** Refuses names of tools that do not exist, which would otherwise silently offer nothing. */
export function checkToolNames(names: readonly string[] | undefined): void {
  const unknown = names?.find((name) => !MCP_TOOL_NAMES.includes(name));
  if (unknown === undefined) return;
  const problem = `there is no tool ${unknown}; there are ${MCP_TOOL_NAMES.join(", ")}`;
  throw new SandlotError("invalid_request", { field: "tools", problem });
}
