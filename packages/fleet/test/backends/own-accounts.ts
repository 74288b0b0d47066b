/** The tests of accounts on every backend: late binding, a kernel that cannot map owners, fleets that were killed. */

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FleetId } from "@sandlot/contract";
import { expect, onTestFinished } from "vitest";
import type { Backend } from "../../src/backend/backend.ts";
import { threadKeyOf } from "../../src/backend/labels.ts";
import { IdMapping, SandboxAccounts } from "../../src/host/accounts/index.ts";
import type { BackendStage, Key, Made } from "../../src/testing/backend-suite/stage.ts";
import { systemWorld } from "../../src/world/system-world.ts";

interface Fleet {
  readonly home: string;
  readonly fleetId: FleetId;
}

export const FILE = "/mnt/user-data/workspace/file";

const world = systemWorld();
/** A process that has ended. */
export const killed = { ...world, identity: { ...world.identity, pid: 2 ** 22 - 1, startTime: "1" } };

/** A kernel or a file system without id-mapped mounts. */
export class NoMapping extends IdMapping {
  override async problem(): Promise<string | null> {
    return "it cannot be done here";
  }
}

export function uidOfProcess(pid: number): number {
  return Number(/^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);
}

/** The account claimed for a sandbox in its fleet's home. An ordinary user's fleet has one, the user's. */
export function claimedUid({ home }: Pick<Fleet, "home">, { target }: Made): number {
  const ids = join(home, "ids");
  const user = process.getuid?.() ?? 0;
  if (user !== 0) return user;
  const claimed = readdirSync(ids).filter(
    (uid) => /^\d+$/.test(uid) && readdirSync(join(ids, uid)).some((name) => name.startsWith(`${target.sandboxId}-`)),
  );
  expect(claimed).toHaveLength(1);
  return Number(claimed[0]);
}

/** The user's files on disk. */
export function homeOf({ home, fleetId }: Fleet, { user, thread }: Key): string {
  return join(home, fleetId, "homes", threadKeyOf(user, thread), "user-data");
}

export async function bind(
  stage: BackendStage,
  blank: Made,
  key: Key,
  how: "makeIn" | "moveIn",
  backend: Backend = stage.backend,
): Promise<Made> {
  const generation = stage.nextGeneration();
  const marker = stage.marker(blank, key, generation);
  await backend.markers.write(marker);
  await backend.workspaces[how](stage.spot(blank, key, generation));
  const target = { ...blank.target, generation, token: marker.token };
  await backend.rebind(target, blank.target, stage.signal);
  return { ...blank, target, spec: { ...blank.spec, generation, token: marker.token } };
}

/**
 * Fleets of this home were killed at every step of a claim, after this one was opened: its next list of objects returns
 * all of their accounts, and keeps those of living sandboxes.
 */
export async function killedClaimsGo(stage: BackendStage, { home, fleetId }: Fleet, objects: string): Promise<void> {
  const made = await stage.make();
  const ids = () => readdirSync(join(home, "ids")).sort();
  const kept = ids();
  const registry = mkdtempSync(join(tmpdir(), "sl-registry-"));
  onTestFinished(() => rmSync(registry, { recursive: true, force: true }));
  const accounts = new SandboxAccounts({
    ...{ home, configured: null, backend: "test", registry: join(registry, "ids.sqlite") },
    world: killed,
  });
  const { uid } = accounts.claim({ name: "unmade-1", path: join(home, fleetId, objects, "unmade-1") });
  expect(ids()).toContain(String(uid));
  const emptied = accounts.claim({ name: "released-1", path: join(home, fleetId, objects, "released-1") });
  rmSync(join(home, "ids", String(emptied.uid), "released-1"));
  await stage.refs();
  expect(ids()).toEqual(kept);
  await stage.destroy(made);
  expect(ids()).toEqual(["number"]);
}

/** A directory that a killed process had begun to write an object into. */
export function beginObject(objects: string): string {
  const { pidNamespace, pid, startTime } = killed.identity;
  const path = join(objects, `.coming-${pidNamespace.replace(/\D/g, "")}.${pid}.${startTime}-unmade-1`);
  mkdirSync(path);
  return path;
}
