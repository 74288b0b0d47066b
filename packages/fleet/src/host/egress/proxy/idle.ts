/** Ends idle connections. One timer per connection compares byte counters, so traffic itself costs nothing. */

import type { Socket } from "node:net";
import type { World } from "../../../world/world.ts";

/** Calls `onIdle` when no byte has passed for `idleMs()`, noticed within a quarter more. Stops by itself when the socket closes. */
export function watchIdle(world: World, socket: Socket, idleMs: () => number, onIdle: () => void): void {
  let seenBytes = -1;
  let seenAtMs = world.monotonicMs();
  const look = (): void => {
    const bytes = socket.bytesRead + socket.bytesWritten;
    const nowMs = world.monotonicMs();
    if (bytes !== seenBytes) {
      seenBytes = bytes;
      seenAtMs = nowMs;
    } else if (nowMs - seenAtMs >= idleMs()) {
      onIdle();
      return;
    }
    timer = world.timer(idleMs() / 4, look, { background: true });
  };
  let timer = world.timer(idleMs() / 4, look, { background: true });
  socket.once("close", () => timer.cancel());
}
