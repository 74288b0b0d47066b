/** `sandlot/testing`: the suites that define a backend, a store and a row server, for their authors. */

export * from "./backend-suite.ts";
export * from "./entry-suite.ts";
export { partialSandbox, type SandboxParts } from "./partial-sandbox.ts";
export * from "./row-server-suite.ts";
export * from "./store-suite.ts";
