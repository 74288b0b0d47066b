/**
 * The same on a fleet of an ordinary user, who cannot give files away and is stopped by permissions.
 */

import { execFileSync } from "node:child_process";
import { chownSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { isRoot, NOTE } from "./ground.ts";

const CHILD = fileURLToPath(new URL("./ordinary-child.ts", import.meta.url));

it("a workspace is bound, goes home, is read, written and purged, whatever its sandbox did to its rights", () => {
  const uid = isRoot ? 59_998 : (process.getuid?.() ?? 0);
  const root = mkdtempSync(join(tmpdir(), "sandlot-disk-"));
  const { NODE_EXTRA_CA_CERTS: _, ...env } = process.env;
  try {
    if (isRoot) chownSync(root, uid, uid);
    const as = isRoot ? { uid, gid: uid } : {};
    const said = execFileSync(process.execPath, ["--conditions=sandlot-source", CHILD, root], { env, ...as });
    expect(JSON.parse(said.toString())).toEqual({
      ...{ uid, owner: uid, bound: "existing", note: "mine", denied: "permission_denied", mode: 0o700 },
      lateBinding: false,
      left: [[], [], [], ["mine"], NOTE],
    });
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
});
