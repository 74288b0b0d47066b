/**
 * The client of a gateway, for Node and browsers. Its leases and sandboxes are used like those of the library.
 *
 * @module @sandlot/client
 */
export * from "../../packages/client/src/index.ts";
