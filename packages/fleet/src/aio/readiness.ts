/**
 * Whether a server of the AIO API is there: asked at `/v1/sandbox`, as everybody does, until it answers. Nothing announces
 * it, so it is asked again soon at first and then less often.
 */

import { SandlotError } from "@sandlot/contract";
import { sleep, within } from "../world/waiting.ts";
import type { World } from "../world/world.ts";
import { httpError, ServerAway, tryJson } from "./wire/answers.ts";
import { sandboxSchema } from "./wire/schemas.ts";
import { type AioWire, NoAnswer, type Reply } from "./wire/wire.ts";

const FIRST_WAIT_MS = 20;
const WAIT_MAX_MS = 500;
const ANSWER_MS = 5_000;
const ABOUT = "/v1/sandbox";
/** Without it, exit codes of commands with an environment, and both streams apart, cannot be had. */
const NEEDED = "/v1/bash/sessions";

/** Waits for the server, then checks that it has what is needed. */
export async function awaitServer(wire: AioWire, world: World, signal: AbortSignal): Promise<void> {
  for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(waitMs * 2, WAIT_MAX_MS)) {
    try {
      return await checkServer(wire, world, signal);
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof NoAnswer) && !(error instanceof ServerAway)) throw error;
    }
    await sleep(world, waitMs, signal);
  }
}

/** One look. Rejects with `NoAnswer` or `ServerAway` when nobody is there. */
export async function checkServer(wire: AioWire, world: World, signal: AbortSignal): Promise<void> {
  const about = await look(wire, world, ABOUT, signal);
  if (about.status !== 200) throw httpError(about, tryJson(about.body), ABOUT);
  if (!sandboxSchema.safeParse(tryJson(about.body)).success)
    throw new SandlotError("internal", { problem: `what answers at ${ABOUT} is no AIO sandbox` });
  const needed = await look(wire, world, NEEDED, signal);
  if (needed.status !== 200) throw httpError(needed, tryJson(needed.body), NEEDED);
}

function look(wire: AioWire, world: World, path: string, signal: AbortSignal): Promise<Reply> {
  const late = () => new NoAnswer(`no answer within ${ANSWER_MS} ms`);
  return within(world, ANSWER_MS, signal, late, (bounded) => wire.ask({ method: "GET", path, signal: bounded }));
}
