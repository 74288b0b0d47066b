/**
 * Prints the source files that run in a gateway's process for one `POST /v1/threads/{thread}/exec` on the local backend, with the thread
 * held: V8's precise coverage of that one request. Fails when they are more than `LIMIT`.
 *
 *   npm run exec-walk
 *
 * A file counts when one of its functions ran. Several requests are measured, and a file counts when it ran in most of them: housekeeping
 * that falls into one of them does not count.
 */

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { request } from "node:http";
import { Session } from "node:inspector/promises";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { startGateway } from "../packages/fleet/src/gateway/index.ts";
import { operatorKeyPath } from "../packages/fleet/src/gateway/keys/operator-key.ts";
import { openFleet } from "../packages/fleet/src/open-fleet.ts";
import { systemWorld } from "../packages/fleet/src/world/system-world.ts";
import { ROOT } from "./runtime.mjs";

/** More files than this make an exec hard to follow. A layer that only forwards is what to look for. */
const LIMIT = 59;
const ROUNDS = 9;

const home = mkdtempSync(join(tmpdir(), "sandlot-walk-"));
const session = new Session();
session.connect();
const fleet = await openFleet({ backend: "local", home });
const gateway = await startGateway({ fleet, home, world: systemWorld(), settings: { port: 0 } });
try {
  const key = readFileSync(operatorKeyPath(home), "utf8").trim();
  const exec = () => post(`${gateway.url}/v1/threads/walk/exec`, key, { command: ["true"] });
  for (let round = 0; round < ROUNDS; round++) await exec();
  await session.post("Profiler.enable");
  await session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
  const counts = new Map<string, number>();
  for (let round = 0; round < ROUNDS; round++) {
    await session.post("Profiler.takePreciseCoverage");
    await exec();
    for (const file of await filesThatRan()) counts.set(file, (counts.get(file) ?? 0) + 1);
  }
  // A timer of a guard may run beside some of them.
  const files = [...counts].filter(([, rounds]) => rounds === ROUNDS).map(([file]) => file);
  for (const file of files.sort()) console.log(file);
  console.log(`exec walk: ${files.length} files, limit ${LIMIT}`);
  if (files.length > LIMIT) process.exitCode = 1;
} finally {
  session.disconnect();
  await gateway.close();
  await fleet.destroy({ thread: "walk", user: "operator" }, { force: true, purge: true }).catch(() => undefined);
  await fleet.close({ destroy: true });
  rmSync(home, { recursive: true, force: true });
}

/** Since the last call; calling it starts the next count. */
async function filesThatRan(): Promise<readonly string[]> {
  const { result } = await session.post("Profiler.takePreciseCoverage");
  return result
    .filter(({ url, functions }) => url.startsWith("file:") && functions.some(hasRun))
    .map(({ url }) => relative(ROOT, fileURLToPath(url)))
    .filter((path) => /^packages\/[^/]+\/src\//.test(path));
}

function hasRun({ ranges }: { readonly ranges: readonly { readonly count: number }[] }): boolean {
  return ranges.some(({ count }) => count > 0);
}

/** Without our client: its files are not the gateway's. */
function post(url: string, key: string, body: object): Promise<void> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const outgoing = request(url, { method: "POST", headers }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (part: string) => (text += part));
      response.on("end", () =>
        response.statusCode === 200 ? resolve() : reject(new Error(`${response.statusCode} ${text}`)),
      );
    });
    outgoing.on("error", reject);
    outgoing.end(JSON.stringify(body));
  });
}
