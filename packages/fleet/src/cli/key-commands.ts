/**
 * `sandlot keys`: who may ask a gateway. Works on the files in the fleet's home, so no gateway needs to run.
 */

import { KEY_SCOPES, type KeyScope, SandlotError } from "@sandlot/contract";
import { resolveSettings } from "../config/resolve-settings.ts";
import { ApiKeys } from "../gateway/index.ts";
import { systemWorld } from "../world/system-world.ts";
import { loadSettings } from "./load-settings.ts";
import { printTable } from "./table.ts";
import { printJson, type Terminal } from "./terminal.ts";
import { makeUsable } from "./usable-home.ts";

interface KeyCommandOptions {
  readonly config?: string;
  readonly json: boolean;
}

export async function createKey(
  terminal: Terminal,
  options: KeyCommandOptions & { readonly scope: string; readonly user?: string; readonly label?: string },
): Promise<void> {
  const scope = KEY_SCOPES.find((known) => known === options.scope);
  if (scope === undefined) {
    const problem = `${options.scope} is not one of ${KEY_SCOPES.join(", ")}`;
    throw new SandlotError("invalid_request", { field: "scope", problem });
  }
  const keys = await openKeys(terminal, options);
  const made = await keys.create(wish(scope, options));
  if (options.json) return printJson(terminal, made);
  terminal.out(`${made.key}\n`);
  terminal.error(`Key ${made.id} (${scope}${made.user === null ? "" : ` ${made.user}`}). It is shown this once.\n`);
}

function wish(scope: KeyScope, { user, label }: { readonly user?: string; readonly label?: string }) {
  return { scope, ...(user !== undefined && { user }), ...(label !== undefined && { label }) };
}

export async function listKeys(terminal: Terminal, options: KeyCommandOptions): Promise<void> {
  const keys = await (await openKeys(terminal, options)).list();
  if (options.json) return printJson(terminal, { keys });
  const rows = keys.map(({ id, scope, user, label, createdAt }) => [
    ...[id, scope, user ?? "-", new Date(createdAt).toISOString(), label ?? "-"],
  ]);
  printTable(terminal, ["ID", "SCOPE", "USER", "CREATED", "LABEL"], rows);
}

export async function revokeKey(terminal: Terminal, id: string, options: KeyCommandOptions): Promise<void> {
  const revoked = await (await openKeys(terminal, options)).revoke(id);
  if (options.json) return printJson(terminal, { id, revoked });
  terminal.out(revoked ? `Key ${id} is revoked.\n` : `There was no key ${id}.\n`);
}

async function openKeys(terminal: Terminal, { config: file }: KeyCommandOptions): Promise<ApiKeys> {
  const { config } = await loadSettings(file, terminal.environment);
  const { home } = resolveSettings(config, terminal.environment);
  await makeUsable(home);
  return ApiKeys.open(home, systemWorld());
}
