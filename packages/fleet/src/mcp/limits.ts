/** Limits of clients of the Model Context Protocol. */

/** Clients commonly give up on a call after a minute; a longer command goes on in the background. */
export const MCP_REPLY_MS = 50_000;
