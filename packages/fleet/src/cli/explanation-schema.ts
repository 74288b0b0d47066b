/** A separate module for one command: building the contract's schemas takes longer than most commands. */

export { explanationSchema } from "@sandlot/contract";
