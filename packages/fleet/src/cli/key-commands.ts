/**
 * `sandlot keys`: who may ask a gateway. Works on the files in the fleet's home, so no gateway needs to run.
 */

import type { KeyScope } from "@sandlot/contract";
import { resolveSettings } from "../config/resolve-settings.ts";
import { ApiKeys } from "../gateway/keys/api-keys.ts";
import { systemWorld } from "../world/system-world.ts";
import { onThisMachine } from "./host-trouble.ts";
import { loadSettings } from "./load-settings.ts";
import { printTable } from "./table.ts";
import { printJson, type Terminal } from "./terminal.ts";
import { makeUsable } from "./usable-home.ts";

interface KeyCommandOptions {
  readonly config?: string;
  readonly json: boolean;
}

interface KeyWish {
  readonly scope: KeyScope;
  readonly user?: string;
  readonly label?: string;
  /** Blueprints that it may name. */
  readonly blueprint?: readonly string[];
}

export async function createKey(terminal: Terminal, options: KeyCommandOptions & KeyWish): Promise<void> {
  const { scope, user, label, blueprint: blueprints } = options;
  const { keys, home } = await openKeys(terminal, options);
  const wish = {
    scope,
    ...(user !== undefined && { user }),
    ...(label !== undefined && { label }),
    ...(blueprints && { blueprints }),
  };
  const made = await onThisMachine("home", home, () => keys.create(wish));
  if (options.json) return printJson(terminal, made);
  terminal.out(`${made.key}\n`);
  terminal.error(`Key ${made.id} (${scope}${made.user === null ? "" : ` ${made.user}`}). It is shown this once.\n`);
}

export async function listKeys(terminal: Terminal, options: KeyCommandOptions): Promise<void> {
  const { keys } = await openKeys(terminal, options);
  const listed = await keys.list();
  if (options.json) return printJson(terminal, { keys: listed });
  const rows = listed.map(({ id, scope, user, label, createdAt }) => [
    ...[id, scope, user ?? "-", new Date(createdAt).toISOString(), label ?? "-"],
  ]);
  printTable(terminal, ["ID", "SCOPE", "USER", "CREATED", "LABEL"], rows);
}

/** Resolves with whether there was such a key: whoever mistypes an id must not believe that the key has ended. */
export async function revokeKey(terminal: Terminal, id: string, options: KeyCommandOptions): Promise<boolean> {
  const { keys, home } = await openKeys(terminal, options);
  const revoked = await onThisMachine("home", home, () => keys.revoke(id));
  if (options.json) printJson(terminal, { id, revoked });
  else if (revoked) terminal.out(`Key ${id} is revoked.\n`);
  else terminal.error(`There is no key ${id}; \`sandlot keys list\` shows which there are.\n`);
  return revoked;
}

async function openKeys(
  terminal: Terminal,
  { config: file }: KeyCommandOptions,
): Promise<{ keys: ApiKeys; home: string }> {
  const { config } = await loadSettings(file, terminal.environment);
  const { home } = resolveSettings(config, terminal.environment);
  await makeUsable(home);
  return { keys: await onThisMachine("home", home, () => ApiKeys.open(home, systemWorld())), home };
}
