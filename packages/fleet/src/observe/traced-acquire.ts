/** An acquire as a span. Its steps are spans below it (`traced-backend.ts`); where callers share one, below the first. */

import type { AcquireRequest, Lease } from "../fleet.ts";
import { annotate, traced } from "./tracing.ts";

interface Acquires {
  acquire(request?: AcquireRequest): Promise<Lease>;
}

export function tracedAcquire(provider: Acquires, request: AcquireRequest = {}): Promise<Lease> {
  const { thread, purpose } = request;
  const attributes = {
    ...(thread !== undefined && { "sandlot.thread": thread }),
    ...(purpose !== undefined && { "sandlot.purpose": purpose }),
  };
  return traced("sandlot.acquire", attributes, async () => {
    const lease = await provider.acquire(request);
    const { id, sandbox, generation, recovery } = lease;
    annotate({
      "sandlot.lease_id": id,
      "sandlot.sandbox_id": sandbox.id,
      "sandlot.generation": generation,
      "sandlot.recovery": recovery.kind,
    });
    return lease;
  });
}
