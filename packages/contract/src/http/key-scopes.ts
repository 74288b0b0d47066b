/** What a key of a gateway may do. A file of its own: the command line lists them without loading a schema. */

export const KEY_SCOPES = ["user", "platform", "operator"] as const;
export type KeyScope = (typeof KEY_SCOPES)[number];
