/** The HTTP API of a gateway, shared by both ends. */

export * from "./checkpoints.ts";
export * from "./dashboard.ts";
export * from "./exec.ts";
export * from "./files.ts";
export * from "./headers.ts";
export * from "./key-scopes.ts";
export * from "./lease-lifetimes.ts";
export * from "./leases.ts";
export * from "./operators.ts";
export * from "./provisioner.ts";
export * from "./threads.ts";
export * from "./timeline.ts";
export * from "./uploads.ts";
