/**
 * A gateway inside your own program: the fleet over HTTP.
 *
 * @module sandlot/gateway
 */
export * from "../../packages/fleet/src/gateway/index.ts";
