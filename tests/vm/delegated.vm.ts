/**
 * Control groups of version 2 for an unprivileged fleet: root delegates a group to it, and it limits its sandboxes
 * below that.
 */

import { spawnSync } from "node:child_process";
import { chownSync, existsSync, mkdirSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";

const GROUPS = "/sys/fs/cgroup";
const HANDED = join(GROUPS, "handed");
const UID = 59_998;

it("limits the sandboxes of an ordinary account in the group that was handed to it", () => {
  writeFileSync(join(GROUPS, "cgroup.subtree_control"), "+memory +cpu +pids");
  mkdirSync(HANDED);
  for (const file of ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"])
    chownSync(join(HANDED, file), UID, UID);
  // Enters as root, then changes the account.
  const enter = `echo $$ > ${HANDED}/cgroup.procs && exec setpriv --reuid=${UID} --regid=${UID} --clear-groups "$@"`;
  const fleet = [process.execPath, "--conditions=sandlot-source", join(import.meta.dirname, "delegated-fleet.ts")];
  const { stdout, stderr } = spawnSync("/bin/sh", ["-c", enter, "sh", ...fleet], { encoding: "utf8" });
  expect(stdout, stderr).not.toBe("");
  const told = JSON.parse(stdout);
  console.log(
    `an ordinary account: ${JSON.stringify({ ...told, eater: told.eater.signal, forker: told.forker.stdout })}`,
  );
  expect(told).toMatchObject({ uid: UID, by: "cgroup-v2", missing: null, maxima: 20, left: [] });
  expect(told.eater).toMatchObject({ signal: "SIGKILL", stdout: "" });
  expect(Number(told.forker.stdout)).toBeLessThan(20);
  expect(told.events).toMatchObject({ oomKills: 1 });
  expect(told.events.pidsRefusals).toBeGreaterThan(0);
  expect(told.own).toBe("0::/handed/sandlot-fleet");
  for (const left of ["sandlot-fleet", ""]) rmdirSync(join(HANDED, left));
  expect(existsSync(HANDED)).toBe(false);
}, 180_000);
