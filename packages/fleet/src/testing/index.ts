/**
 * `sandlot/testing`: the suites that say what a backend and a store are, for whoever writes one.
 */

export * from "./backend-suite.ts";
export { partialSandbox, type SandboxParts } from "./partial-sandbox.ts";
export * from "./store-suite.ts";
