/**
 * `sandlot keys`: API keys of a gateway. Uses the named gateway (`--url`, `$SANDLOT_URL`, `sandlot login`), with an
 * operator's key; without one it works on the files in the fleet's home, so no gateway needs to run.
 */

import { type ApiKeyInfo, isoTime, type KeyRequest, type KeyScope, type NewApiKey } from "@sandlot/contract";
import { resolveSettings } from "../config/resolve-settings.ts";
import { onThisMachine } from "./host-trouble.ts";
import { printTable } from "./table.ts";
import { findGateway, type TargetOptions } from "./target.ts";
import { printJson, type Terminal } from "./terminal.ts";

interface KeyCommandOptions extends TargetOptions {
  readonly json: boolean;
}

interface KeyWish {
  readonly scope: KeyScope;
  readonly user?: string;
  readonly label?: string;
  /** Blueprints that it may use. */
  readonly blueprint?: readonly string[];
}

interface Keys {
  create(request: KeyRequest): Promise<NewApiKey>;
  list(): Promise<readonly ApiKeyInfo[]>;
  revoke(id: string): Promise<boolean>;
}

export async function createKey(terminal: Terminal, options: KeyCommandOptions & KeyWish): Promise<void> {
  const { scope, user, label, blueprint: blueprints } = options;
  const made = await (await openKeys(terminal, options)).create({
    scope,
    ...(user !== undefined && { user }),
    ...(label !== undefined && { label }),
    ...(blueprints !== undefined && { blueprints: [...blueprints] }),
  });
  if (options.json) return printJson(terminal, made);
  terminal.out(`${made.key}\n`);
  terminal.error(`Key ${made.id} (${scope}${made.user === null ? "" : ` ${made.user}`}). It is shown this once.\n`);
}

export async function listKeys(terminal: Terminal, options: KeyCommandOptions): Promise<void> {
  const listed = await (await openKeys(terminal, options)).list();
  if (options.json) return printJson(terminal, { keys: listed });
  const rows = listed.map(({ id, scope, user, label, blueprints, createdAt }) => [
    ...[id, scope, user ?? "-", blueprintsOf(scope, blueprints), isoTime(createdAt), label ?? "-"],
  ]);
  printTable(terminal, ["ID", "SCOPE", "USER", "BLUEPRINTS", "CREATED", "LABEL"], rows);
}

/** Resolves with whether there was such a key: after a typo the user must not believe that the key was revoked. */
export async function revokeKey(terminal: Terminal, id: string, options: KeyCommandOptions): Promise<boolean> {
  const revoked = await (await openKeys(terminal, options)).revoke(id);
  if (options.json) printJson(terminal, { id, revoked });
  else if (revoked) terminal.out(`Key ${id} is revoked.\n`);
  else terminal.error(`There is no key ${id}; \`sandlot keys list\` shows which there are.\n`);
  return revoked;
}

function blueprintsOf(scope: ApiKeyInfo["scope"], granted: readonly string[] | null): string {
  return granted === null ? (scope === "user" ? "default" : "*") : granted.join(",");
}

async function openKeys(terminal: Terminal, options: KeyCommandOptions): Promise<Keys> {
  const { gateway, config } = await findGateway(terminal, options);
  if (gateway !== null)
    return {
      create: (request) => gateway.createKey(request),
      list: () => gateway.listKeys(),
      revoke: (id) => gateway.revokeKey(id),
    };
  const { ApiKeys } = await import("../gateway/keys/api-keys.ts");
  const { systemWorld } = await import("../world/system-world.ts");
  const { makeUsable } = await import("./usable-home.ts");
  const { home } = resolveSettings(config, terminal.environment);
  await makeUsable(home);
  const inHome = <T>(work: () => Promise<T>) => onThisMachine("home", home, work);
  const keys = await inHome(() => ApiKeys.open(home, systemWorld()));
  return {
    create: ({ scope, user, label, blueprints }) =>
      inHome(() =>
        keys.create({ scope, ...(user && { user }), ...(label && { label }), ...(blueprints && { blueprints }) }),
      ),
    list: () => inHome(() => keys.list()),
    revoke: (id) => inHome(() => keys.revoke(id)),
  };
}
