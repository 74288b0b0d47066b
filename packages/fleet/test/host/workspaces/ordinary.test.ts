/** The same on a fleet of an ordinary user, who cannot change owners and is stopped by permissions. */

import { execFileSync } from "node:child_process";
import { chownSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { asOrdinaryUser, ORDINARY, ordinaryNode, seenByOrdinaryUser } from "../../support/ordinary-user.ts";
import { isRoot, NOTE } from "./ground.ts";

const CHILD = fileURLToPath(new URL("./ordinary-child.ts", import.meta.url));

it("a workspace is bound, goes home, is read, written and purged, whatever its sandbox did to its rights", () => {
  const uid = isRoot ? ORDINARY.uid : (process.getuid?.() ?? 0);
  const root = mkdtempSync(join(tmpdir(), "sandlot-disk-"));
  const { NODE_EXTRA_CA_CERTS: _, ...env } = process.env;
  try {
    if (isRoot) chownSync(root, uid, uid);
    const [program = "", ...args] = isRoot
      ? asOrdinaryUser(ordinaryNode(), "--conditions=sandlot-source", seenByOrdinaryUser(CHILD), root)
      : [process.execPath, "--conditions=sandlot-source", CHILD, root];
    const said = execFileSync(program, args, { env });
    expect(JSON.parse(said.toString())).toEqual({
      ...{ uid, owner: uid, bound: "existing", note: "mine", denied: "permission_denied", mode: 0o700 },
      lateBinding: false,
      left: [[], [], [], ["mine"], NOTE],
    });
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
});
