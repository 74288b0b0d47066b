/** The identifying part of an event. */

import type { SandboxRecord } from "../store/record.ts";

export function aboutRecord({
  sandboxId,
  generation,
  user,
  thread,
}: Pick<SandboxRecord, "sandboxId" | "generation" | "user" | "thread">) {
  return { sandboxId, generation, user, thread };
}
