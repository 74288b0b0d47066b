/** The scopes of a gateway's key. A separate file, so that the command line lists them without loading a schema. */

export const KEY_SCOPES = ["user", "platform", "operator"] as const;
export type KeyScope = (typeof KEY_SCOPES)[number];
