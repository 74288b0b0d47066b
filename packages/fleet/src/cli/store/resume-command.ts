/** `sandlot store resume`: opens a store to instances again that an export has closed. */

import { SandlotError } from "@sandlot/contract";
import { printJson, type Terminal } from "../terminal.ts";
import { findStore, withStore } from "./opened-store.ts";

export async function resumeCommand(terminal: Terminal, options: { config?: string; json: boolean }): Promise<void> {
  const found = await findStore(terminal, options.config);
  const resumed = await withStore(found, false, async ({ store }) => {
    const { transfer } = await store.overview();
    if (transfer?.state === "importing")
      throw new SandlotError("store_moved", { state: "importing", since: transfer.since });
    return transfer === null ? false : store.endTransfer({ state: "moved", id: transfer.id });
  });
  if (options.json) return printJson(terminal, { store: found.description, resumed });
  if (!resumed) return terminal.error(`The store is open already (${found.description}).\n`);
  terminal.out(`Instances can use the store again (${found.description}).\n`);
  terminal.error("Do not import its file any more: what happens from now on is not in it.\n");
}
