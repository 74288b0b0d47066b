/**
 * From nothing to the end of the first command, against bwrap starting a bare `node:http` server that responds once;
 * and, for root's fleet, against the same with one account for all sandboxes.
 */

import type { Lease } from "../../../packages/fleet/src/fleet.ts";
import { type BareServer, startBareServer } from "../../baselines/bare-server.ts";
import { interleave, type Subject } from "../../measuring/interleave.ts";
import { compare, type Result } from "../../measuring/result.ts";
import { type LocalFleet, openLocalFleet, openSharedAccountFleet } from "../../stage/local-fleet.ts";
import type { SuiteOptions } from "../suite.ts";

const LIMIT = 1.8;
/** A separate account may cost at most 5 % of a create. */
const OWN_ACCOUNT_LIMIT = 1.05;

export async function* coldCreate({ quick }: SuiteOptions): AsyncGenerator<Result> {
  await using local = await openLocalFleet();
  const plan = { rounds: quick ? 8 : 30, batch: 1, timingsPerRound: 1, warmUp: 2 };
  const isRoot = process.getuid?.() === 0;
  await using shared = isRoot ? await openSharedAccountFleet() : null;
  const sharing = shared === null ? [] : [sandbox(shared, "cold acquire and exec, one account")];
  const [ours, bare, one] = await interleave([sandbox(local), bubblewrapServer(), ...sharing], plan);
  if (ours === undefined || bare === undefined) throw new Error("A side is missing.");
  const about = "acquire without a pool + exec of /bin/true, against bwrap --unshare-all + node:http + one answer";
  yield compare({ name: "cold-create-first-exec", limit: LIMIT, about }, ours, bare);
  if (one === undefined) return;
  const accounts = "acquire without a pool + exec of /bin/true, with an account for each sandbox and with one for all";
  yield compare({ name: "cold-create-own-account", limit: OWN_ACCOUNT_LIMIT, about: accounts }, ours, one);
}

function sandbox({ fleet }: LocalFleet, name = "cold acquire and exec"): Subject {
  let serial = 0;
  let lease: Lease | null = null;
  return {
    name,
    run: async () => {
      lease = await fleet.acquire({ thread: `thread-${++serial}` });
      const { exitCode } = await lease.sandbox.exec(["/bin/true"]);
      if (exitCode !== 0) throw new Error(`true ended with ${exitCode}`);
    },
    settle: async () => {
      await lease?.release();
      await fleet.destroy({ thread: `thread-${serial}` }, { purge: true });
    },
  };
}

function bubblewrapServer(): Subject {
  let server: BareServer | null = null;
  return {
    name: "bwrap and node:http",
    run: async () => {
      server = startBareServer((directory) => [
        ...["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"],
        ...["--bind", directory, directory, "--die-with-parent", "--"],
      ]);
      await server.ready;
      await server.answer();
    },
    settle: async () => server?.end(),
  };
}
