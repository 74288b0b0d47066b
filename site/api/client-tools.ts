/**
 * The tools that agents use in a sandbox, without a framework.
 *
 * @module @sandlot/client/tools
 */
export * from "../../packages/client/src/tools/index.ts";
