/** The refusal to use a sandbox that another backend of this fleet has made. */

import { type SandboxId, SandlotError } from "@sandlot/contract";

const RETRY_AFTER_MS = 5_000;

export function madeByAnother(maker: string, sandboxId: SandboxId): SandlotError {
  const problem =
    `the ${maker} backend has made it, and this fleet is configured for docker now; end it with \`sandlot rm\`, which keeps the ` +
    `thread's workspace, or set \`backend\` to ${maker} again`;
  return new SandlotError("sandbox_unreachable", { sandboxId, problem, retryAfterMs: RETRY_AFTER_MS });
}
