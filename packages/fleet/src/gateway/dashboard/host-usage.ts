/** Memory and disk of the gateway's host. What cannot be read is `null`, never a guess. */

import { readFile, statfs } from "node:fs/promises";
import { freemem, totalmem } from "node:os";

export interface Usage {
  readonly usedBytes: number;
  readonly totalBytes: number;
}

export interface HostUsage {
  readonly memory: Usage | null;
  readonly disk: Usage | null;
  readonly processBytes: number;
}

export async function hostUsage(home: string): Promise<HostUsage> {
  const [memory, disk] = await Promise.all([memoryUsage(), diskUsage(home)]);
  return { memory, disk, processBytes: process.memoryUsage.rss() };
}

async function memoryUsage(): Promise<Usage | null> {
  const totalBytes = totalmem();
  // Linux counts caches as used; what programs can still get stands in another line.
  const text = await readFile("/proc/meminfo", "utf8").catch(() => "");
  const availableKib = /^MemAvailable:\s+(\d+) kB$/m.exec(text)?.[1];
  const freeBytes = availableKib === undefined ? freemem() : Number(availableKib) * 1_024;
  return totalBytes > 0 ? { usedBytes: Math.max(0, totalBytes - freeBytes), totalBytes } : null;
}

async function diskUsage(home: string): Promise<Usage | null> {
  try {
    const { blocks, bfree, bsize } = await statfs(home);
    return { usedBytes: (blocks - bfree) * bsize, totalBytes: blocks * bsize };
  } catch {
    return null;
  }
}
