/** What a client of the Model Context Protocol puts up with. */

/** Clients commonly give up on a call after a minute; a command that takes longer than this goes on in the background. */
export const MCP_REPLY_MS = 50_000;
