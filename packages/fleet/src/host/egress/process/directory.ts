/**
 * The host's directory of one proxy, prepared before its process starts. Several processes may do this at once and
 * repeatedly. Correct files are not rewritten, because programs inside are reading them.
 */

import { chmodSync, chownSync, linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { NetworkPolicy } from "../../../backend/network/policy.ts";
import type { World } from "../../../world/world.ts";
import { type Authority, createAuthority } from "../certificates/authority.ts";
import { endedHosts, nameServerFiles, needsAuthority, trustFiles } from "../sandbox-side/sandbox-network.ts";
import { type EgressSettings, places } from "./egress-settings.ts";

export interface DirectoryOptions {
  readonly directory: string;
  readonly policy: NetworkPolicy;
  readonly account?: EgressSettings["account"];
  readonly world: World;
}

interface KeptAuthority extends Authority {
  readonly hosts: readonly string[];
}

export function prepareDirectory(options: DirectoryOptions): void {
  const { directory, policy, account, world } = options;
  const { inside } = places(directory);
  mkdirSync(inside, { recursive: true });
  chmodSync(directory, 0o711);
  chmodSync(inside, 0o755);
  if (account !== undefined && process.getuid?.() === 0) {
    for (const path of [directory, inside]) chownSync(path, account.uid, account.gid);
  }
  const files = [
    ...(policy.mode === "open" ? nameServerFiles(inside) : []),
    ...(policy.registries?.files ?? []).map(({ name, content }) => ({ path: join(inside, name), content })),
    ...(needsAuthority(policy) ? trustFiles(inside, authorityOf(options).certificatePem) : []),
  ];
  for (const { path, content } of files) writeWhenDifferent(path, content, world);
}

/** Stored on disk, readable by the host only: programs inside must also trust the proxy's successor. */
export function authorityOf({ directory, policy, world }: DirectoryOptions): Authority {
  const path = places(directory).authority;
  const hosts = [...new Set(endedHosts(policy))].sort();
  const kept = readJson<KeptAuthority>(path);
  if (kept !== null && kept.hosts.join() === hosts.join()) return pick(kept);
  if (kept !== null) rmSync(path, { force: true });
  const made: KeptAuthority = { hosts, ...createAuthority(hosts, world.wallMs()) };
  const fresh = `${path}.${world.randomHex(3)}`;
  writeFileSync(fresh, JSON.stringify(made), { mode: 0o600 });
  try {
    linkSync(fresh, path);
    return pick(made);
  } catch (error) {
    // Another process was faster; its authority is the sandbox's.
    const theirs = readJson<KeptAuthority>(path);
    if (theirs === null) throw error;
    return pick(theirs);
  } finally {
    rmSync(fresh);
  }
}

/** Reads a file that this code wrote; `null` when it does not exist. */
export function readJson<Value>(path: string): Value | null {
  try {
    return JSON.parse(readFileSync(path, "utf8")) as Value;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return null;
    throw error;
  }
}

function writeWhenDifferent(path: string, content: string, world: World): void {
  try {
    if (readFileSync(path, "utf8") === content) return;
  } catch {
    // Missing or unreadable: written below, where a problem shows.
  }
  const fresh = `${path}.${world.randomHex(3)}`;
  writeFileSync(fresh, content, { mode: 0o644 });
  renameSync(fresh, path);
}

function pick({ certificatePem, keyPem }: Authority): Authority {
  return { certificatePem, keyPem };
}
