/** The key `environments`: how long what blueprints' setups have built is kept, and when a failed build is repeated. */

import { z } from "zod";
import { count, durationOrOff, size } from "../backend/config/amounts.ts";
import { DEFAULTS } from "./defaults.ts";

const { environments } = DEFAULTS;

export const environmentsSchema = z
  .strictObject({
    retryAfterMs: durationOrOff("that every acquire tries again")
      .default(environments.retryAfterMs)
      .describe(
        "How long a failed build answers acquires with its error before one of them repeats it. A changed setup and " +
          "`sandlot env build` repeat it at once. 0: every acquire repeats it.",
      ),
    maxAgeDays: count
      .min(1, "must be at least 1: a sandbox would find its environment removed while it is made")
      .default(environments.maxAgeDays)
      .describe("An environment that no sandbox was made with for this long is removed."),
    maxTotalBytes: size
      .default(environments.maxTotalBytes)
      .describe(
        "What all environments of a home may take. Beyond, those that were not used for the longest time are removed.",
      ),
  })
  .prefault({})
  .describe(
    "What the setups of blueprints have built. One that a sandbox has mounted, or that a configured blueprint has now, " +
      "is never removed.",
  );
