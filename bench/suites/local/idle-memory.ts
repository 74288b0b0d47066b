/**
 * What an idle sandbox takes of the host's memory: the proportional share (PSS) of every process in it. Printed, not held
 * against a limit: it depends on how many sandboxes share the pages of one Node.
 */

import { readdirSync, readFileSync } from "node:fs";
import { openLocalFleet } from "../../stage/local-fleet.ts";

const SANDBOXES = 10;

export async function idleMemory(): Promise<void> {
  await using local = await openLocalFleet();
  const before = new Set(pids());
  for (let made = 0; made < SANDBOXES; made += 1) {
    await using lease = await local.fleet.acquire({ thread: `idle-${made}` });
    await lease.sandbox.exec("true");
  }
  const inside = pids().filter((pid) => !before.has(pid));
  const bytes = inside.reduce((sum, pid) => sum + proportionalBytes(pid), 0);
  const each = bytes / SANDBOXES / 1024 ** 2;
  console.log(
    `idle-memory: ${each.toFixed(1)} MiB PSS per idle sandbox (${SANDBOXES} sandboxes, ${inside.length} processes)\n`,
  );
}

function pids(): readonly string[] {
  return readdirSync("/proc").filter((name) => /^\d+$/.test(name));
}

function proportionalBytes(pid: string): number {
  try {
    const [, kilobytes = "0"] = /^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8")) ?? [];
    return Number(kilobytes) * 1024;
  } catch {
    return 0; // It has ended meanwhile.
  }
}
