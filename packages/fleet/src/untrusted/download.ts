/** Content from a sandbox, streamed: a stall while the reader waits ends it. A slow reader has no limit. */

import type { IncomingMessage } from "node:http";
import { SandlotError } from "@sandlot/contract";
import type { World } from "../world/world.ts";
import { STREAM_LIMITS } from "./limits.ts";

export async function* readOn(response: IncomingMessage, timer: World["timer"]): AsyncGenerator<Uint8Array> {
  const problem = `the content stopped coming for ${STREAM_LIMITS.stallMs} ms`;
  const late = () => response.destroy(new SandlotError("bad_sandbox_response", { problem }));
  const chunks = response[Symbol.asyncIterator]();
  for (;;) {
    const deadline = timer(STREAM_LIMITS.stallMs, late);
    const { done, value } = await chunks.next().finally(() => deadline.cancel());
    if (done === true) return;
    yield value as Uint8Array;
  }
}
