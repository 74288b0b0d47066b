/** An acquire as a span, with its steps as children (`traced-backend.ts`); a shared open's are the first caller's. */

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
