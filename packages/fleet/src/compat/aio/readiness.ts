/**
 * Waits for an AIO server: polls `/v1/sandbox`, as other clients do, until it responds. Nothing announces it, so the
 * interval is short at first and then longer.
 */

import { SandlotError } from "@sandlot/contract";
import { readJson } from "../../untrusted/json.ts";
import { aioLimit } from "../../untrusted/limits.ts";
import { sleep, within } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import { httpError, ServerAway } from "./wire/answers.ts";
import { sandboxSchema } from "./wire/schemas.ts";
import { type AioWire, NoAnswer, type Reply } from "./wire/wire.ts";

const FIRST_WAIT_MS = 20;
const WAIT_MAX_MS = 500;
const ANSWER_MS = 5_000;
const ABOUT = "/v1/sandbox";
/** Without it, exit codes of commands with an environment, and separate streams, are unsupported. */
const NEEDED = "/v1/bash/sessions";

/** Waits for the server, then checks that it has the needed API and requires its key. Otherwise `KeyIgnored`. */
export async function awaitServer(wire: AioWire, world: World, signal: AbortSignal): Promise<void> {
  for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(waitMs * 2, WAIT_MAX_MS)) {
    try {
      await checkServer(wire, world, signal);
      return wire.hasKey ? await checkKeyIsNeeded(wire, world, signal) : undefined;
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof NoAnswer) && !(error instanceof ServerAway)) throw error;
    }
    await sleep(world, waitMs, signal);
  }
}

/** One check. Rejects with `NoAnswer` or `ServerAway` when no server responds. */
export async function checkServer(wire: AioWire, world: World, signal: AbortSignal): Promise<void> {
  const about = await look(wire, world, ABOUT, signal);
  if (about.status !== 200) throw httpError(about, ABOUT);
  if (!sandboxSchema.safeParse(await readJson(about.body, aioLimit(ABOUT).maxValues)).success)
    throw new SandlotError("bad_sandbox_response", { problem: `what answers at ${ABOUT} is no AIO sandbox` });
  const needed = await look(wire, world, NEEDED, signal);
  if (needed.status !== 200) throw httpError(needed, NEEDED);
}

/** A server with a key must require it: otherwise it is open to everything that reaches its port. */
async function checkKeyIsNeeded(wire: AioWire, world: World, signal: AbortSignal): Promise<void> {
  const { status } = await look(wire, world, ABOUT, signal, { anonymous: true });
  if (status !== 401 && status !== 403) throw new KeyIgnored(`${ABOUT} without the key was answered with ${status}`);
}

/** The server works, also without its key. */
export class KeyIgnored extends Error {
  override readonly name = "KeyIgnored";
}

function look(
  wire: AioWire,
  world: World,
  path: string,
  signal: AbortSignal,
  more: { readonly anonymous?: boolean } = {},
): Promise<Reply> {
  const late = () => new NoAnswer(`no answer within ${ANSWER_MS} ms`);
  return within(world, ANSWER_MS, signal, late, (bounded) =>
    wire.ask({ method: "GET", path, signal: bounded, ...more }),
  );
}
