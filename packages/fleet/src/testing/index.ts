/** `sandlot/testing`: the suites that define a backend and a store, for their authors. */

export * from "./backend-suite.ts";
export * from "./entry-suite.ts";
export { partialSandbox, type SandboxParts } from "./partial-sandbox.ts";
export * from "./store-suite.ts";
