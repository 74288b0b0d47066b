/**
 * A sandbox's namespace does not keep a mount that the host has unmounted since, and the thread that makes namespaces
 * does not take its process with it.
 */

import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const SOURCE = fileURLToPath(new URL("../../../src/host/accounts/mount-namespaces.ts", import.meta.url));

/** Prints whether the namespace has the mount, before the host unmounts it and after. */
const SCRIPT = `
  import { execFileSync } from "node:child_process";
  import { MountNamespaces } from ${JSON.stringify(SOURCE)};
  const place = process.argv[1];
  execFileSync("mount", ["-n", "-t", "tmpfs", "none", place]);
  const namespaces = new MountNamespaces();
  const descriptor = await namespaces.make({ mapped: [], steps: [] });
  const has = () =>
    execFileSync("nsenter", ["--mount=/proc/" + process.pid + "/fd/" + descriptor, "cat", "/proc/self/mountinfo"], { encoding: "utf8" }).includes(place);
  const before = has();
  execFileSync("umount", ["-n", place]);
  console.log(before, has());
  namespaces.close();
`;

test.runIf(process.getuid?.() === 0)("what the host unmounts is unmounted in it too", () => {
  const place = mkdtempSync(join(tmpdir(), "sl-propagation-"));
  try {
    const node = [process.execPath, "--input-type=module", "-e", SCRIPT, place];
    const said = execFileSync("unshare", ["--mount", "--propagation", "shared", "--", ...node], { encoding: "utf8" });
    expect(said.trim()).toBe("true false");
  } finally {
    rmdirSync(place);
  }
});

const EXITING = fileURLToPath(new URL("exiting-process.ts", import.meta.url));

test.runIf(process.getuid?.() === 0).each(["exit", "close"])(
  "a process that ends while the thread mounts ends as it wants to: %s",
  (how) => {
    // The thread takes some tens of milliseconds to start, and each request one or two.
    const ends = Array.from({ length: 16 }, (_, at) => {
      const args = ["--conditions=sandlot-source", EXITING, how, String(at * 9)];
      const { status, signal, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
      return status === 0 ? "as it wants to" : `${at * 9} ms: ${status ?? signal} ${stderr.slice(0, 500)}`;
    });
    expect(new Set(ends)).toEqual(new Set(["as it wants to"]));
  },
);
