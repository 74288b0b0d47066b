/** Running `true` in a sandbox through HTTP against the same through the library. */

import { interleave, type Subject } from "../../measuring/interleave.ts";
import { compare, type Result } from "../../measuring/result.ts";
import { openLocalFleet } from "../../stage/local-fleet.ts";
import { serveGateway } from "../../stage/served-gateway.ts";
import type { SuiteOptions } from "../suite.ts";

const LIMIT = 1.5;

interface Runs {
  exec(command: string): Promise<{ readonly exitCode: number | null }>;
}

export async function* execThroughHttp({ quick }: SuiteOptions): AsyncGenerator<Result> {
  await using local = await openLocalFleet();
  await using served = await serveGateway();
  await using inside = await local.fleet.acquire({ thread: "bench" });
  await using outside = await served.client.acquire({ thread: "bench" });
  const held = (name: string, { sandbox }: { readonly sandbox: Runs }): Subject =>
    subject(name, () => sandbox.exec("true"));
  const headers = { authorization: `Bearer ${served.key}`, "content-type": "application/json" };
  const single = async () => {
    const init = { method: "POST", headers, body: '{"command":"true"}' };
    return (await (await fetch(`${served.url}/v1/threads/single/exec`, init)).json()) as { exitCode: number };
  };
  const turn = async () => {
    await using lease = await local.fleet.acquire({ thread: "single" });
    return await lease.sandbox.exec("true");
  };
  const plan = { rounds: quick ? 15 : 60, batch: 10, timingsPerRound: 1, warmUp: 100 };
  const [http, library, alone, whole] = await interleave(
    [
      held("exec through HTTP", outside),
      held("exec through the library", inside),
      subject("a request of its own", single),
      subject("acquire, exec, release", turn),
    ],
    plan,
  );
  if (http === undefined || library === undefined || alone === undefined || whole === undefined)
    throw new Error("A side is missing.");
  const about = "a lease is held on both sides; the gateway is a process of its own, the client is ours";
  yield compare({ name: "exec-through-http", limit: LIMIT, about }, http, library);
  const turns = "nobody holds a lease: both sides take one and give it back each time";
  yield compare({ name: "exec-through-http-single", limit: LIMIT, about: turns }, alone, whole);
}

function subject(name: string, once: () => Promise<{ readonly exitCode: number | null }>): Subject {
  return {
    name,
    run: async (count) => {
      for (let done = 0; done < count; done += 1) {
        const { exitCode } = await once();
        if (exitCode !== 0) throw new Error(`true ended with ${exitCode}`);
      }
    },
  };
}
