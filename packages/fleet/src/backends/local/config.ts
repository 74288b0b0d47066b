/** The section `local` of a configuration. */

import { z } from "zod";
import { accountId, DEFAULT_ACCOUNT_ID } from "../../backend/config/account-ids.ts";
import { size } from "../../backend/config/amounts.ts";

const LOCAL_DEFAULTS = {
  /** Real commands with real isolation, and bubblewrap as the only requirement. */
  isolation: "bubblewrap",
  uid: DEFAULT_ACCOUNT_ID,
  gid: DEFAULT_ACCOUNT_ID,
  /** Both are memory, used only for written bytes. A larger value lets one sandbox take more of the host's. */
  tmpBytes: 1_073_741_824,
  homeBytes: 1_073_741_824,
} as const;

export const localSchema = z
  .strictObject({
    isolation: z
      .enum(["bubblewrap", "unsafe-process"])
      .default(LOCAL_DEFAULTS.isolation)
      .describe(
        "`bubblewrap`: namespaces, seccomp, no capabilities. `unsafe-process` (experimental): plain processes of this machine that can " +
          "see everything their account can; no security boundary, for machines without namespaces.",
      ),
    uid: accountId
      .default(LOCAL_DEFAULTS.uid)
      .describe(
        "The account that workspaces of a root fleet belong to on disk. Sandboxes run as accounts of `accountIds` and see them as " +
          "their own. An ordinary user's fleet runs sandboxes as itself.",
      ),
    gid: accountId.default(LOCAL_DEFAULTS.gid).describe("The group that goes with `uid`."),
    tmpBytes: size.default(LOCAL_DEFAULTS.tmpBytes).describe("Size of a sandbox's private /tmp, which is in memory."),
    homeBytes: size
      .default(LOCAL_DEFAULTS.homeBytes)
      .describe("Size of a temporary home (`home: temporary`), which is in memory."),
  })
  .prefault({})
  .describe("The local backend.");

export type LocalConfig = Readonly<z.output<typeof localSchema>>;
