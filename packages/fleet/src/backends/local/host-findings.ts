/** Features of this machine that the local backend uses beyond the start: egress, control groups. */

import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import type { Finding } from "../../backend/doctor/finding.ts";
import { processListFinding } from "../../backend/doctor/isolation-findings.ts";
import type { Environment } from "../../backend/entry.ts";

/** Programs that a network policy other than `none` needs, and the Debian package that has each. */
const NETWORK_PROGRAMS = { ip: "iproute2", unshare: "util-linux", nsenter: "util-linux" } as const;
const OPEN_PROGRAMS = { slirp4netns: "slirp4netns" } as const;

export function localHostFindings(environment: Environment): readonly Finding[] {
  const hiding = process.platform === "linux" ? [processListFinding()] : [];
  return [controlGroupFinding(), ...hiding, networkFinding(environment), openNetworkFinding(environment)];
}

function controlGroupFinding(): Finding {
  const name = "control groups";
  if (existsSync("/sys/fs/cgroup/cgroup.controllers")) return { name, status: "ok", detail: "version 2" };
  if (existsSync("/sys/fs/cgroup/memory")) return { name, status: "ok", detail: "version 1" };
  const fix = "mount them, or run where they are; limits are then per process (rlimits)";
  return { name, status: "warn", detail: "none are mounted", fix };
}

function networkFinding(environment: Environment): Finding {
  const name = "network allow";
  const missing = missingOf(NETWORK_PROGRAMS, environment);
  if (missing.length === 0) return { name, status: "ok", detail: "sandboxes can have a way out to named hosts" };
  return lacking(name, "sandboxes can have no way out", missing, NETWORK_PROGRAMS);
}

function openNetworkFinding(environment: Environment): Finding {
  const name = "network open";
  const programs = { ...NETWORK_PROGRAMS, ...OPEN_PROGRAMS };
  const missing = missingOf(programs, environment);
  if (missing.length > 0) return lacking(name, "no sandbox can have an open network", missing, programs);
  if (existsSync("/dev/net/tun")) return { name, status: "ok", detail: "sandboxes can have an open network" };
  const fix = "modprobe tun, or give the container /dev/net/tun";
  return { name, status: "warn", detail: "no sandbox can have an open network: /dev/net/tun is missing", fix };
}

function missingOf(programs: Readonly<Record<string, string>>, environment: Environment): readonly string[] {
  const folders = [...(environment.PATH ?? "").split(delimiter), "/usr/sbin", "/sbin"];
  return Object.keys(programs).filter((program) => !folders.some((folder) => existsSync(join(folder, program))));
}

function lacking(
  name: string,
  what: string,
  missing: readonly string[],
  programs: Readonly<Record<string, string>>,
): Finding {
  const packages = [...new Set(missing.map((program) => programs[program]))].join(" ");
  const detail = `${what}: ${missing.join(", ")} not found`;
  return { name, status: "warn", detail, fix: `apt-get install ${packages}` };
}
