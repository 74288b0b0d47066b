/** The MCP server: `runMcpStdio` for the command line, `createMcpHttp` for the gateway. */

export { createMcpHttp, type McpCaller, type McpHttp, type McpHttpOptions } from "./http.ts";
export { type McpStdioOptions, runMcpStdio } from "./stdio.ts";
export { MCP_TOOL_NAMES } from "./tool-names.ts";
