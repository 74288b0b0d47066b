/**
 * Connects two sockets: bytes and the end of one side pass to the other, and a failure of one destroys both. The kernel
 * does the back-pressure: a slow reader slows the writer and fills no memory.
 */

import type { Duplex, Transform } from "node:stream";

export interface TunnelOptions {
  /** Transforms what comes back to the first side. */
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
      // After two orderly ends each closes with its last bytes. Otherwise one failed, and the other is destroyed.
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
