/** The error of a call that the engine did not answer in time, also while a fleet opens. */

import { SandlotError } from "@sandlot/contract";
import type { Backend } from "../../backend/backend.ts";

const RETRY_AFTER_MS = 1_000;

export function engineSilence({ name }: Backend, what: string, patienceMs: number): SandlotError {
  const problem = `no answer within ${patienceMs} ms`;
  const details = { engine: name, problem, tried: [what], retryAfterMs: RETRY_AFTER_MS };
  return new SandlotError("engine_unavailable", details);
}
