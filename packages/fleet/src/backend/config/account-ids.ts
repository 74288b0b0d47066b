/** Accounts of the host in a configuration: the accounts that sandboxes run as, and that own workspaces. */

import { z } from "zod";

/** The number of one account. */
export const accountId = z
  .int()
  .min(1, "must not be 0: a sandbox never runs as the host's root")
  .max(4_294_967_294, "must be the number of an account");

/** Not the account `nobody`, which other software shares. No account of this number needs to exist. */
export const DEFAULT_ACCOUNT_ID = 59_999;

/** Small enough that no program reads an id as a negative number. */
const ID_MAX = 2_147_483_646;

export const accountIdsSchema = z
  .strictObject({
    first: z
      .int()
      .min(1, "must not be 0: a sandbox never runs as the host's root")
      .max(ID_MAX, "must be below 2147483647")
      .describe("The first id."),
    count: z
      .int()
      .min(2, "must be at least 2: a sandbox takes two ids")
      .max(ID_MAX, "must be below 2147483647")
      .describe("How many ids there are from `first` on."),
  })
  .refine(({ first, count }) => first + count - 1 <= ID_MAX, "must end below 2147483647")
  .describe(
    "The ids that sandboxes of a root fleet run as, two for each: one for its commands, one for its egress. " +
      "All fleets of one home share them, and no other home may have any of them. Default: a range that no other home has.",
  );
