/**
 * What one fleet has in its namespace beside its sandboxes: the ConfigMap that names its store, and the Secret with its
 * key. Both are made by the first process of the fleet, and the second process of a race finds those of the first.
 *
 *   ConfigMap sandlot-fleet-<fleetId>   store: a hash of kind and address; engine: the name of this engine
 *   Secret    sandlot-key-<fleetId>     keys: one or two lines of `FleetKeys.parse`; the egress proxies mount it
 *
 * Two stores of one fleet would end each other's pods as orphans: the second is refused with `fleet_conflict`.
 */

import { createHash } from "node:crypto";
import { type FleetId, SandlotError } from "@sandlot/contract";
import { z } from "zod";
import { FleetKeys } from "../../sandboxd/fleet-keys.ts";
import type { World } from "../../world/world.ts";
import { type Api, type ApiObject, isInDoubt, type Kind } from "./api/api.ts";
import { LABEL } from "./pod/names.ts";

export interface FleetClaim {
  readonly engineId: string;
  readonly keys: FleetKeys;
}

export interface ClaimOptions {
  readonly fleetId: FleetId;
  /** Names the store, without its credentials. Absent: it is not compared. */
  readonly storeName?: string;
}

const dataSchema = z.looseObject({ data: z.record(z.string(), z.string()).default({}) });
/** Of 32 bytes. */
const KEY_BYTES = 32;
const ATTEMPTS_MAX = 5;

export async function claimFleet(
  api: Api,
  world: World,
  { fleetId, storeName }: ClaimOptions,
  signal: AbortSignal,
): Promise<FleetClaim> {
  const store = storeName === undefined ? "" : createHash("sha256").update(storeName).digest("hex").slice(0, 16);
  const name = `sandlot-fleet-${fleetId}`;
  const labels = { [LABEL.fleet]: fleetId };
  const wanted = {
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { name, labels },
    data: { store, engine: `kubernetes-${world.randomHex(8)}` },
  };
  const found = dataSchema.parse(await madeOnce(api, "configmaps", name, wanted, signal)).data;
  if (storeName !== undefined && found.store !== undefined && found.store !== "" && found.store !== store)
    throw new SandlotError("fleet_conflict", { fleetId, other: found.store });
  if (found.engine === undefined) throw unusable(`the ConfigMap ${name} has no entry "engine"`);
  return { engineId: found.engine, keys: await fleetKeys(api, world, fleetId, signal) };
}

async function fleetKeys(api: Api, world: World, fleetId: FleetId, signal: AbortSignal): Promise<FleetKeys> {
  const name = `sandlot-key-${fleetId}`;
  const line = `${world.randomHex(4)}:${Buffer.from(world.randomHex(KEY_BYTES), "hex").toString("base64")}\n`;
  const wanted = {
    apiVersion: "v1",
    kind: "Secret",
    type: "Opaque",
    metadata: { name, labels: { [LABEL.fleet]: fleetId } },
    data: { keys: Buffer.from(line).toString("base64") },
  };
  const { data } = dataSchema.parse(await madeOnce(api, "secrets", name, wanted, signal));
  return FleetKeys.parse(Buffer.from(data.keys ?? "", "base64").toString("utf8"), `the Secret ${name}, entry keys`);
}

/** Of two requests with one name only one takes effect, so an answer that is missing is looked for, and asked for again. */
async function madeOnce(api: Api, kind: Kind, name: string, wanted: object, signal: AbortSignal): Promise<ApiObject> {
  for (let attempt = 1; ; attempt++) {
    const found = await api.get(kind, name, signal);
    if (found !== null) return found;
    try {
      return await api.create(kind, wanted, signal);
    } catch (error) {
      signal.throwIfAborted();
      if (!isInDoubt(error) || attempt >= ATTEMPTS_MAX) throw error;
    }
  }
}

function unusable(problem: string): SandlotError {
  return new SandlotError("engine_unavailable", { engine: "kubernetes", problem, tried: [], retryAfterMs: 5_000 });
}
