/**
 * Limits of an ordinary account, in a control group delegated to it: runs a process that takes too much memory, one
 * that starts too many, and reports the outcome. It has its group to itself, like a service.
 */

import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import type { FleetId } from "@sandlot/contract";
import { openLimits } from "../../packages/fleet/src/host/limits/index.ts";
import { systemWorld } from "../../packages/fleet/src/world/system-world.ts";

const MEGABYTE = 1024 * 1024;
const EATER = 'my $x = "a" x (300 << 20); print "full"';
const FORKER =
  "my $n = 0; for (1 .. 60) { my $p = fork; last unless defined $p; if (!$p) { sleep 60; exit } $n++; push @k, $p } kill 9, @k; print $n";

const limits = openLimits({ fleetId: "delegated" as FleetId, world: systemWorld() });
const group = limits.create("sandbox-1", { memoryBytes: 128 * MEGABYTE, cpuCount: 0.5, pidsMax: 20 });
const run = (script: string) => {
  const [file = "", ...args] = [...group.startPrefix, "perl", "-e", script];
  const { signal, stdout, stderr } = spawnSync(file, args, { encoding: "utf8" });
  return { signal, stdout, stderr };
};
const [eater, forker] = [run(EATER), run(FORKER)];
const told = {
  uid: process.getuid?.(),
  by: limits.description.memory.by,
  missing: limits.description.missing,
  ...{ eater, forker, events: group.events(), maxima: group.usage().processMax },
  own: readFileSync("/proc/self/cgroup", "utf8").trim(),
};
await group.release();
limits.close();
console.log(JSON.stringify({ ...told, left: limits.findGroups() }));
