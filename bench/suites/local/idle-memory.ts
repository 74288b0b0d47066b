/**
 * Memory of an idle sandbox on the host: the proportional share (PSS) of every process in it. Printed, without a limit:
 * it depends on how many sandboxes share the pages of one Node.
 *
 * It counts new descendants of this process only: other programs on the machine come and go meanwhile.
 */

import { readdirSync, readFileSync } from "node:fs";
import { openLocalFleet } from "../../stage/local-fleet.ts";

const SANDBOXES = 10;

export async function idleMemory(): Promise<void> {
  await using local = await openLocalFleet();
  const before = new Set(descendants(process.pid));
  for (let made = 0; made < SANDBOXES; made += 1) {
    await using lease = await local.fleet.acquire({ thread: `idle-${made}` });
    await lease.sandbox.exec("true");
  }
  const inside = descendants(process.pid).filter((pid) => !before.has(pid));
  if (inside.length < SANDBOXES)
    throw new Error(`Of ${SANDBOXES} sandboxes only ${inside.length} processes were found.`);
  const bytes = inside.reduce((sum, pid) => sum + proportionalBytes(pid), 0);
  const each = bytes / SANDBOXES / 1024 ** 2;
  console.log(
    `idle-memory: ${each.toFixed(1)} MiB PSS per idle sandbox (${SANDBOXES} sandboxes, ${inside.length} processes)\n`,
  );
}

/** Every descendant of `root`. */
function descendants(root: number): readonly number[] {
  const children = new Map<number, number[]>();
  for (const name of readdirSync("/proc").filter((entry) => /^\d+$/.test(entry))) {
    const parent = parentOf(name);
    if (parent !== null) children.set(parent, [...(children.get(parent) ?? []), Number(name)]);
  }
  const below = (pid: number): number[] => (children.get(pid) ?? []).flatMap((child) => [child, ...below(child)]);
  return below(root);
}

function parentOf(pid: string): number | null {
  try {
    const [, fields = ""] = /\) (.*)$/s.exec(readFileSync(`/proc/${pid}/stat`, "utf8")) ?? [];
    return Number(fields.split(" ")[1]);
  } catch {
    return null; // It has ended meanwhile.
  }
}

function proportionalBytes(pid: number): number {
  try {
    const [, kilobytes = "0"] = /^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8")) ?? [];
    return Number(kilobytes) * 1024;
  } catch {
    return 0; // It has ended meanwhile.
  }
}
