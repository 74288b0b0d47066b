/**
 * `@sandlot/contract`: the agreement between two processes. Identifiers, errors, events, the narrow view of a sandbox
 * and the schemas of the wire. Its only behaviour is checking and describing these.
 */

export * from "./about.ts";
export * from "./daemon.ts";
export * from "./errors.ts";
export * from "./events.ts";
export * from "./file-mode.ts";
export * from "./file-text.ts";
export * from "./home.ts";
export * from "./http/index.ts";
export * from "./ids.ts";
export * from "./open-enum.ts";
export * from "./output-so-far.ts";
export * from "./results/index.ts";
export * from "./sandbox.ts";
export * from "./sandbox-limits.ts";
export * from "./schemas.ts";
export * from "./sessions.ts";
export * from "./suggest.ts";
export * from "./timeline-words.ts";
export * from "./times.ts";
export * from "./utf8.ts";
export * from "./workspace-paths.ts";
