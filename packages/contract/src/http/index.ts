/** The HTTP API of a gateway, as both ends know it. */

export * from "./exec.ts";
export * from "./files.ts";
export * from "./headers.ts";
export * from "./key-scopes.ts";
export * from "./lease-lifetimes.ts";
export * from "./leases.ts";
export * from "./operators.ts";
export * from "./threads.ts";
export * from "./uploads.ts";
