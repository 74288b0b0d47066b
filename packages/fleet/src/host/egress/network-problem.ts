/** Finds out by trying which network modes this machine supports. */

import { SandlotError } from "@sandlot/contract";
import type { NetworkPolicy } from "../../backend/network/policy.ts";
import type { World } from "../../world/world.ts";
import { NamespaceHolder } from "./namespace/holder.ts";
import { OpenCarrier } from "./open/carrier.ts";

/** Why sandboxes with this network mode are unsupported here; `null` when they work. Leaves nothing behind. */
export async function networkProblem(mode: NetworkPolicy["mode"], world: World): Promise<string | null> {
  if (mode === "none") return null;
  let holder: NamespaceHolder | undefined;
  try {
    holder = await NamespaceHolder.start(world);
    if (mode === "open") await (await OpenCarrier.start(world, holder)).close();
    return null;
  } catch (error) {
    return error instanceof SandlotError && "problem" in error.details ? String(error.details.problem) : String(error);
  } finally {
    await holder?.close();
  }
}
