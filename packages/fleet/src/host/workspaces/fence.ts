/**
 * Three records whose whole content is the name of an empty file:
 *
 *   homes/<threadKey>/fence.<generation>.<at>.<sandboxId>             at: home, none, or a slot's name
 *   slots/<slot>/tenant.<threadKey>.<generation>.<device>.<inode>     the workspace that was put into this slot
 *   homes/<threadKey>/restore.<checkpoint>.<generation>               a restore of the workspace at home is unfinished
 *
 * One rename(2) changes a name, so a record is always complete. And a name is metadata: a journalling filesystem keeps
 * the order in which names changed. So also after a power cut a workspace is never found moved without the record that
 * was written before its move. Because of that no step waits for the disk.
 *
 * Invariants
 * - They are written only under the lock of their thread.
 * - The fence's generation never goes down, and it outlives the workspace.
 * - A tenant is written before its workspace is moved into the slot. The disk shows whether the workspace is there; the
 *   record of a former tenant stays until the slot is removed or gets another tenant.
 * - While the preallocated file exists, under a neutral name, there is no record beside it: it becomes the first
 *   record.
 */

import { renameSync, unlinkSync } from "node:fs";
import { join } from "node:path";
import type { Generation, SandboxId, ThreadKey } from "@sandlot/contract";
import { namesIn, statIfThere } from "../../world/disk-trouble.ts";
import { preallocate } from "./preallocated.ts";

/** The user of a workspace. Generations may repeat after a store was lost, so the sandbox is part of it. */
export interface Use {
  readonly generation: Generation;
  /** `null` when there is none, or in a record of an earlier version. */
  readonly sandboxId: SandboxId | null;
}

export interface Fence extends Use {
  /** Where the workspace was put last: `home`, `none` after a purge, or a slot's name. */
  readonly at: string;
}

export interface Tenant {
  readonly thread: ThreadKey;
  readonly generation: Generation;
  /** Of the directory itself, so that another directory of the same name is not mistaken for it. */
  readonly inode: bigint;
  /** For the operator only: device numbers can change with a reboot, so no decision uses it. */
  readonly device: bigint;
}

/** The workspace at home is between two states: nothing may use it until the restore has been finished. */
export interface RestoreFence {
  readonly checkpoint: string;
  readonly generation: Generation;
}

interface NameRecord<Value> {
  read(directory: string): Value | null;
  /** Preallocates the file under a neutral name: a rename takes less time than a create. */
  prepare(directory: string): void;
  write(directory: string, value: Value): void;
  drop(directory: string): void;
}

export const FENCE: NameRecord<Fence> = nameRecord({
  prefix: "fence.",
  format: ({ generation, at, sandboxId }) => `${generation}.${at}${sandboxId === null ? "" : `.${sandboxId}`}`,
  pattern: /^(\d{1,16})\.([A-Za-z0-9_-]+)(?:\.([A-Za-z0-9_-]+))?$/,
  parse: ([generation = "", at = "", sandboxId]) => ({
    generation: Number(generation) as Generation,
    at,
    sandboxId: (sandboxId ?? null) as SandboxId | null,
  }),
});

export const TENANT: NameRecord<Tenant> = nameRecord({
  prefix: "tenant.",
  format: ({ thread, generation, device, inode }) => `${thread}.${generation}.${device}.${inode}`,
  pattern: /^([0-9a-f]+)\.(\d{1,16})\.(\d+)\.(\d+)$/,
  parse: ([thread = "", generation = "", device = "", inode = ""]) => ({
    thread: thread as ThreadKey,
    generation: Number(generation) as Generation,
    device: BigInt(device),
    inode: BigInt(inode),
  }),
});

export const RESTORE: NameRecord<RestoreFence> = nameRecord({
  prefix: "restore.",
  format: ({ checkpoint, generation }) => `${checkpoint}.${generation}`,
  pattern: /^([0-9a-f]{16})\.(\d{1,16})$/,
  parse: ([checkpoint = "", generation = ""]) => ({ checkpoint, generation: Number(generation) as Generation }),
});

interface NameRecordKind<Value> {
  readonly prefix: string;
  readonly format: (value: Value) => string;
  readonly pattern: RegExp;
  readonly parse: (parts: readonly (string | undefined)[]) => Value;
}

function nameRecord<Value>({ prefix, format, pattern, parse }: NameRecordKind<Value>): NameRecord<Value> {
  const nameless = `${prefix}-`;
  const current = (names: readonly string[]): { name: string; parts: readonly (string | undefined)[] } | null => {
    for (const name of names) {
      const match = name.startsWith(prefix) ? pattern.exec(name.slice(prefix.length)) : null;
      if (match !== null) return { name, parts: match.slice(1) };
    }
    return null;
  };
  const isAhead = (directory: string) => isThere(join(directory, nameless));
  return {
    read(directory) {
      // Listing takes longer than a stat, and creating an error for a missing file longer still.
      if (!isThere(directory) || isAhead(directory)) return null;
      const found = current(namesIn(directory));
      return found === null ? null : parse(found.parts);
    },
    prepare: (directory) => preallocate(join(directory, nameless)),
    write(directory, value) {
      const before = isAhead(directory) ? nameless : current(namesIn(directory))?.name;
      const after = `${prefix}${format(value)}`;
      if (before === after) return;
      if (before === undefined) preallocate(join(directory, after));
      else renameSync(join(directory, before), join(directory, after));
    },
    drop(directory) {
      const found = current(namesIn(directory));
      if (found !== null) unlinkSync(join(directory, found.name));
    },
  };
}

function isThere(path: string): boolean {
  return statIfThere(path) !== undefined;
}
