/**
 * Every call of the client against a gateway. Part of the packed fixture of a version, so it stands alone: its one
 * argument is the settings, `{ url, key, folder, port }`; it prints, by the name of each call, `null` or the error.
 */

import { SandlotClient } from "@sandlot/client";
import { isSandlotError } from "@sandlot/contract";
import { CLIENT_CALLS, SANDBOX_CALLS } from "../client-calls.ts";

const { url, key, folder, port } = JSON.parse(process.argv[2] ?? "{}") as Readonly<Record<string, string>>;
const client = new SandlotClient({ url: url ?? "", apiKey: key ?? "", user: "u", retriesMax: 0 });
const lease = await client.acquire({ thread: "versions" });
const stage = { client, lease, sandbox: lease.sandbox, at: (name: string) => `${folder}/${name}`, port: Number(port) };
const outcomes: Record<string, string | null> = {};
for (const [name, call] of Object.entries({ ...SANDBOX_CALLS, ...CLIENT_CALLS }))
  outcomes[name] = await Promise.race([
    call(stage).then(
      () => null,
      (error: unknown) => (isSandlotError(error) ? error.code : String(error)),
    ),
    new Promise<string>((resolve) => setTimeout(() => resolve("it did not end"), 10_000)),
  ]);
await lease.release();
console.log(JSON.stringify(outcomes));
process.exit(0);
