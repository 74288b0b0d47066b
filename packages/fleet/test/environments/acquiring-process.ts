/** A process with five acquires at once; it prints what each sandbox sees of the environment. */

import { openFleet } from "../../src/open-fleet.ts";

const { config, setup, index } = JSON.parse(process.argv[2] ?? "{}");
const fleet = await openFleet({ ...config, blueprints: { default: { setup } } });
const seen = await Promise.all(
  [0, 1, 2, 3, 4].map(async (thread) => {
    const lease = await fleet.acquire({ thread: `t${index}-${thread}` });
    const { stdout } = await lease.sandbox.exec("cat /opt/env/when");
    await lease.release();
    return stdout.trim();
  }),
);
await fleet.close({ destroy: true });
console.log(seen.join("\n"));
process.exit(0);
