/** `sandlot explain pool`: which blanks a gateway keeps ready and why; without a gateway, which ones it would keep. */

import type { PoolReply } from "@sandlot/contract";
import { choosePool } from "../config/default-pool.ts";
import type { FleetConfig } from "../config/fleet-config.ts";
import { resolveSettings } from "../config/resolve-settings.ts";
import { openBackend } from "../open-fleet.ts";
import { systemWorld } from "../world/system-world.ts";
import { withProgress } from "./progress.ts";
import { findGateway, type TargetOptions } from "./target.ts";
import { printJson, type Terminal } from "./terminal.ts";
import { makeUsable } from "./usable-home.ts";

export async function poolCommand(terminal: Terminal, options: TargetOptions & { json: boolean }): Promise<void> {
  const { gateway, config } = await findGateway(terminal, options);
  const look = () => (gateway === null ? wouldBe(config, terminal) : gateway.pool());
  const report = await withProgress(terminal, "Looking", look);
  if (options.json) return printJson(terminal, report);
  terminal.out(`${report.summary}\n`);
  for (const { blueprint, ready, target, coming, memoryBytes } of report.blueprints) {
    const memory = memoryBytes === null ? "memory is not counted here" : `${Math.round(memoryBytes / 1_024 ** 2)} MiB`;
    terminal.out(`  ${blueprint}: ${ready} of ${target} ready, ${coming} coming, ${memory}\n`);
  }
  const missed = Object.entries(report.misses).map(([reason, count]) => `${count} ${reason}`);
  if (report.hits > 0 || missed.length > 0)
    terminal.out(`  new sandboxes since it began: ${[`${report.hits} from a blank`, ...missed].join(", ")}\n`);
}

/** A command's own fleet keeps no blank, so there is nothing to count. */
async function wouldBe(config: FleetConfig, { environment }: Terminal): Promise<PoolReply> {
  const settings = resolveSettings(config, environment);
  await makeUsable(settings.home);
  const backend = await openBackend({ ...settings, orphanTimeoutMs: 0 }, systemWorld());
  try {
    const { pool, because } = choosePool(config.pool, settings, backend);
    const kept = Object.entries(pool).map(([name, count]) => `${count} of ${name}`);
    const what = kept.length === 0 ? "would keep no blank ready" : `would keep blanks ready: ${kept.join(", ")}`;
    return { summary: `A gateway of this configuration ${what}. ${because}`, blueprints: [], hits: 0, misses: {} };
  } finally {
    await backend.close();
  }
}
