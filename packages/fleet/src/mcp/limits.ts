/** What a client of the Model Context Protocol puts up with. */

/** Clients commonly give up on a call after a minute; this leaves time to end a command and to answer. */
export const MCP_COMMAND_MS = 50_000;
