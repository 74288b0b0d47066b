/** A namespace that a sandbox lives in does not hold what the host has unmounted since. */

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const SOURCE = fileURLToPath(new URL("../../src/host-accounts/mount-namespaces.ts", import.meta.url));

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
