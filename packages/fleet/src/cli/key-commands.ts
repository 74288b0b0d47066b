/**
 * `sandlot keys`: API keys of a gateway. Uses the named gateway (`--url`, `$SANDLOT_URL`, `sandlot login`), with an
 * operator's key. Without one it works on the files in the fleet's home, or on the store where several hosts share it,
 * so no gateway needs to run.
 */

import { type ApiKeyInfo, isoTime, type KeyRequest, type KeyScope, type NewApiKey } from "@sandlot/contract";
import type { FleetConfig } from "../config/fleet-config.ts";
import { REGISTRY, storeEntry } from "../config/registry.ts";
import { resolveSettings } from "../config/resolve-settings.ts";
import type { ApiKeys } from "../gateway/keys/api-keys.ts";
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
  /** How long it works. */
  readonly expires?: number;
}

interface Keys {
  create(request: KeyRequest): Promise<NewApiKey>;
  list(): Promise<readonly ApiKeyInfo[]>;
  revoke(id: string): Promise<boolean>;
}

export async function createKey(terminal: Terminal, options: KeyCommandOptions & KeyWish): Promise<void> {
  const { scope, user, label, blueprint: blueprints, expires: ttlMs } = options;
  const request = {
    scope,
    ...(user !== undefined && { user }),
    ...(label !== undefined && { label }),
    ...(blueprints !== undefined && { blueprints: [...blueprints] }),
    ...(ttlMs !== undefined && { ttlMs }),
  };
  const made = await withKeys(terminal, options, (keys) => keys.create(request));
  if (options.json) return printJson(terminal, made);
  terminal.out(`${made.key}\n`);
  const until = made.expiresAt === null ? "" : `, until ${isoTime(made.expiresAt)}`;
  const whose = made.user === null ? "" : ` ${made.user}`;
  terminal.error(`Key ${made.id} (${scope}${whose}${until}). It is shown this once.\n`);
}

export async function listKeys(terminal: Terminal, options: KeyCommandOptions): Promise<void> {
  const listed = await withKeys(terminal, options, (keys) => keys.list());
  if (options.json) return printJson(terminal, { keys: listed });
  const rows = listed.map(({ id, scope, user, label, blueprints, createdAt, expiresAt }) => [
    ...[id, scope, user ?? "-", blueprintsOf(scope, blueprints), isoTime(createdAt)],
    ...[expiresAt === null ? "-" : isoTime(expiresAt), label ?? "-"],
  ]);
  printTable(terminal, ["ID", "SCOPE", "USER", "BLUEPRINTS", "CREATED", "EXPIRES", "LABEL"], rows);
}

/** Resolves with whether there was such a key: after a typo the user must not believe that the key was revoked. */
export async function revokeKey(terminal: Terminal, id: string, options: KeyCommandOptions): Promise<boolean> {
  const revoked = await withKeys(terminal, options, (keys) => keys.revoke(id));
  if (options.json) printJson(terminal, { id, revoked });
  else if (revoked) terminal.out(`Key ${id} is revoked.\n`);
  else terminal.error(`There is no key ${id}; \`sandlot keys list\` shows which there are.\n`);
  return revoked;
}

/** Moves the keys of this home's files into the store that several hosts share. Needs no gateway. */
export async function importKeys(terminal: Terminal, options: KeyCommandOptions): Promise<void> {
  const { config } = await findGateway(terminal, options);
  const ids = await withStoredKeys(terminal, config, (keys) => keys.importFromHome());
  if (options.json) return printJson(terminal, { imported: ids });
  const what = ids.length === 0 ? "This home has no keys in files" : `${ids.length} keys were moved into the store`;
  terminal.out(`${what}.\n`);
}

function blueprintsOf(scope: ApiKeyInfo["scope"], granted: readonly string[] | null): string {
  return granted === null ? (scope === "user" ? "default" : "*") : granted.join(",");
}

async function withKeys<T>(
  terminal: Terminal,
  options: KeyCommandOptions,
  use: (keys: Keys) => Promise<T>,
): Promise<T> {
  const { gateway, config } = await findGateway(terminal, options);
  if (gateway !== null)
    return use({
      create: (request) => gateway.createKey(request),
      list: () => gateway.listKeys(),
      revoke: (id) => gateway.revokeKey(id),
    });
  return withStoredKeys(terminal, config, (keys) =>
    use({
      create: ({ scope, user, label, blueprints, ttlMs }) =>
        keys.create({
          ...{ scope, ...(user && { user }), ...(label && { label }) },
          ...{ ...(blueprints && { blueprints }), ...(ttlMs !== undefined && { ttlMs }) },
        }),
      list: () => keys.list(),
      revoke: (id) => keys.revoke(id),
    }),
  );
}

/** The keys of the configured fleet, without its gateway. */
async function withStoredKeys<T>(
  terminal: Terminal,
  config: FleetConfig,
  use: (keys: ApiKeys) => Promise<T>,
): Promise<T> {
  const { ApiKeys } = await import("../gateway/keys/api-keys.ts");
  const { systemWorld } = await import("../world/system-world.ts");
  const { makeUsable } = await import("./usable-home.ts");
  const { home, store: settings } = resolveSettings(config, terminal.environment);
  await makeUsable(home);
  const world = systemWorld();
  const entry = storeEntry(REGISTRY, settings);
  const store = entry.isShared === true ? await entry.open(settings, world) : null;
  try {
    return await onThisMachine("home", home, async () => use(await ApiKeys.open(home, world, store?.entries ?? null)));
  } finally {
    await store?.close();
  }
}
