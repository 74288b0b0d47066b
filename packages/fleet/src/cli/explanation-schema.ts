/** Of the contract, for the one command that needs it: making the contract's schemas takes longer than most commands. */

export { explanationSchema } from "@sandlot/contract";
