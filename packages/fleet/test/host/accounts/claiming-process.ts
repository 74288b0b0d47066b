/** Claims accounts and returns them until it is killed: `node claiming-process.ts <home>`. Says when it begins. */

import { join } from "node:path";
import { SandboxAccounts } from "../../../src/host/accounts/index.ts";
import { systemWorld } from "../../../src/world/system-world.ts";

const home = process.argv[2] ?? "";
const registry = join(home, "../ids.sqlite");
const accounts = new SandboxAccounts({ home, configured: null, backend: "local", registry, world: systemWorld() });
process.stdout.write("claiming\n");
for (let serial = 0; ; serial += 1) {
  const name = `made-${serial}`;
  const account = accounts.claim({ name, path: join(home, "objects", name) });
  if (serial % 3 !== 0) accounts.release(name, account);
}
