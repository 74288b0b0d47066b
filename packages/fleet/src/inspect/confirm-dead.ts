/**
 * An operator's word that nothing of a sandbox runs any more, where its engine cannot tell by itself.
 *
 * Invariant: a sandbox that answers is refused. The word is for what cannot be asked.
 */

import { SandlotError } from "@sandlot/contract";
import { byId, type ExplainParts } from "./explain.ts";

/** Another process may reach that engine. */
const ELSEWHERE_MS = 30_000;

export async function confirmDead(
  parts: Pick<ExplainParts, "store" | "backend" | "isOurs">,
  id: string,
  by: string,
  signal: AbortSignal,
): Promise<void> {
  const { backend } = parts;
  if (backend.confirmDead === undefined)
    throw new SandlotError("capability_missing", {
      ...{ backend: backend.name, capability: "confirm-dead" },
      neededBy: "a confirmation: its engine always knows what runs",
    });
  const found = await byId(parts, id, { user: null });
  // An ended one needs no word.
  if (!("state" in found)) return;
  const { ref, sandboxId, engine } = found;
  if (!parts.isOurs(found)) throw new SandlotError("engine_unreachable", { engine, retryAfterMs: ELSEWHERE_MS });
  if (ref === null) throw refused(`${sandboxId} is still being made`);
  if ((await backend.probe(ref, signal)) === "alive") throw refused(`${sandboxId} answers: it is alive`);
  await backend.confirmDead(ref, by, signal);
}

function refused(problem: string): SandlotError {
  return new SandlotError("invalid_request", { field: "sandbox", problem });
}
