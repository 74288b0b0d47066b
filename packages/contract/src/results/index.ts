/** The results of a sandbox, the same for every implementation. */

export * from "./checkpoints.ts";
export * from "./daemon.ts";
export * from "./exec.ts";
export * from "./files.ts";
export * from "./processes.ts";
export * from "./sessions.ts";
export * from "./terminals.ts";
export * from "./timeline.ts";
export * from "./timeline-kinds.ts";
