/** Names that both ends of the HTTP API use: headers, the default address, the events of a stream. */

export const GATEWAY_DEFAULT_HOST = "127.0.0.1";
export const GATEWAY_DEFAULT_PORT = 8750;

export const GATEWAY_HEADERS = {
  /** The key; `Authorization: Bearer KEY` means the same. */
  apiKey: "x-api-key",
  /** The user that a platform's or an operator's key acts for. */
  user: "x-sandlot-user",
  /** In every response and in the gateway's log. */
  requestId: "x-request-id",
  /** The generation of the thread's sandbox that answered. */
  generation: "x-sandlot-generation",
  /** The gateway's protocol version, in every response (`docs/versioning.md`). */
  protocol: "x-sandlot-protocol",
  /** In every request of the dashboard. No page of another origin can send it: see `docs/THREAT_MODEL.md`. */
  dashboard: "x-sandlot-dashboard",
} as const;

/** A browser cannot send headers with a WebSocket: it offers the key as a subprotocol instead. */
export const WEBSOCKET_PROTOCOL = "sandlot.v1";
export const WEBSOCKET_KEY_PREFIX = "sandlot.key.";
export const WEBSOCKET_USER_PREFIX = "sandlot.user.";

/** Events of a stream of output. `resume` means: the gateway ends this connection, the command goes on. */
export const EXEC_STREAM_EVENTS = ["start", "stdout", "stderr", "gap", "exit", "resume", "error"] as const;
