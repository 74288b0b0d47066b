/**
 * The suites that every backend and every store has to pass, for authors of one.
 *
 * @module sandlot/testing
 */
export * from "../../packages/fleet/src/testing/index.ts";
