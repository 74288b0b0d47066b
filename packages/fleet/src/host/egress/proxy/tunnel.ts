/**
 * Two sockets, tied together: what one says the other hears, an end on one side is an end on the other, and the death of
 * one is the death of both. Back-pressure is the kernel's: a slow reader slows the writer and fills no memory.
 */

import type { Duplex, Transform } from "node:stream";

export interface TunnelOptions {
  /** Looks at what comes back to the first side. */
  readonly inspect?: Transform | undefined;
  /** Called once, when one direction has ended and the other still runs. */
  readonly onHalfOpen?: (() => void) | undefined;
}

export function tie(client: Duplex, upstream: Duplex, { inspect, onHalfOpen }: TunnelOptions = {}): void {
  const destroyBoth = (): void => {
    client.destroy();
    upstream.destroy();
  };
  const ends = new Set<Duplex>();
  for (const side of [client, upstream]) {
    side.on("error", destroyBoth);
    side.once("close", () => {
      // Both ended in order: each closes when its last bytes are out. Otherwise one died, and the other has no partner.
      if (ends.size < 2) destroyBoth();
    });
    side.once("end", () => {
      ends.add(side);
      if (ends.size === 1) onHalfOpen?.();
    });
  }
  client.pipe(upstream);
  if (inspect === undefined) {
    upstream.pipe(client);
  } else {
    inspect.on("error", destroyBoth);
    upstream.pipe(inspect).pipe(client);
  }
}
