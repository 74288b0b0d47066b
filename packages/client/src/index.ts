/** The client of a Sandlot gateway. */

export { SandlotError } from "@sandlot/contract";
