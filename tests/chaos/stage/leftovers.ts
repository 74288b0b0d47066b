/**
 * Everything of one fleet on this machine: the engine's containers, networks and volumes, claimed accounts, and the
 * files and directories of sandboxes. What belongs to an expected sandbox (a waiting blank) is no leftover.
 */

import { readdirSync } from "node:fs";
import { join } from "node:path";
import type { FleetId } from "@sandlot/contract";
import type Docker from "dockerode";
import { dockerLayout } from "../../../packages/fleet/src/backends/docker/objects/container-objects.ts";
import { egressPath, socketPath } from "../../../packages/fleet/src/host/layout.ts";

/** Below the fleet's directory. Files that all sandboxes share (`frames`) stay. */
const DIRECTORIES = ["containers", "slots", "markers", "quarantine", "aio", "homes/.trash"];
/** What outlives a purged workspace: its last generation, and its owner. */
const OF_A_PURGED_HOME = /^(fence\.|names\.json$)/;

/** `meant`: the expected sandboxes. */
export async function leftovers(
  docker: Docker,
  { home, fleetId }: { readonly home: string; readonly fleetId: FleetId },
  meant: readonly { readonly sandboxId: string; readonly generation: number }[],
): Promise<readonly string[]> {
  const layout = dockerLayout(home, fleetId, "/tmp");
  const names = meant.map(({ sandboxId, generation }) => `${sandboxId}-${generation}`);
  const hashed = names.flatMap((name) => [socketPath(layout, name), egressPath(layout, name)]);
  const isMeant = (path: string) =>
    meant.some(({ sandboxId }) => path.includes(sandboxId)) || hashed.some((one) => path.startsWith(one));
  const places = [...DIRECTORIES.map((name) => join(layout.root, name)), layout.sockets, layout.egress];
  const files = places
    .flatMap((place) => entries(place).map((name) => join(place, name)))
    .filter((path) => !isMeant(path));
  const homes = entries(join(layout.root, "homes")).filter((name) => !name.startsWith("."));
  const data = homes.flatMap((home) =>
    entries(join(layout.root, "homes", home))
      .filter((name) => !OF_A_PURGED_HOME.test(name))
      .map((name) => join(layout.root, "homes", home, name)),
  );
  const ids = join(home, "ids");
  // An account without a claim is a leftover as well.
  const accounts = entries(ids)
    .filter((name) => name !== "number" && !entries(join(ids, name)).some(isMeant))
    .flatMap((uid) =>
      entries(join(ids, uid))
        .map((name) => join(ids, uid, name))
        .concat(join(ids, uid)),
    );
  const labelled = { label: [`sandlot.fleet=${fleetId}`] };
  const all = await docker.listContainers({ all: true, filters: labelled });
  const containers = all.filter(({ Labels }) => !isMeant(Labels["sandlot.sandbox"] ?? ""));
  const networks = (await docker.listNetworks()).filter(({ Name }) => !BUILT_IN.has(Name));
  const { Volumes } = await docker.listVolumes();
  return [
    ...files,
    ...data,
    ...accounts,
    ...containers.map(({ Id, State }) => `container ${Id} (${State})`),
    ...networks.map(({ Name }) => `network ${Name}`),
    ...(Volumes ?? []).map(({ Name }) => `volume ${Name}`),
  ].toSorted();
}

const BUILT_IN: ReadonlySet<string> = new Set(["none", "host", "bridge"]);

function entries(path: string): readonly string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}
