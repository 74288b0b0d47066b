/** The accounts that processes of this machine run as, as far as this process can see. */

import { readdirSync, readFileSync } from "node:fs";

export function runningIds(): ReadonlySet<number> {
  const ids = new Set<number>();
  for (const pid of readdirSync("/proc")) {
    if (!/^\d+$/.test(pid)) continue;
    let status: string;
    try {
      status = readFileSync(`/proc/${pid}/status`, "latin1");
    } catch {
      // The process ended meanwhile.
      continue;
    }
    // A zombie holds no resources any more.
    if (/^State:\s+Z/m.test(status)) continue;
    for (const id of /^Uid:\s+(.+)/m.exec(status)?.[1]?.split(/\s+/) ?? []) ids.add(Number(id));
  }
  return ids;
}
