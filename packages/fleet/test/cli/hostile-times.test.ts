/** Times that a program inside a sandbox has set far beyond the range of dates: everything that prints one goes on. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandlotClient } from "@sandlot/client";
import type { FileListing } from "@sandlot/contract";
import { afterAll, beforeAll, expect, it } from "vitest";
import { readOperatorKey, serve } from "../../src/gateway/index.ts";
import { openFleetAndHost } from "../../src/open-fleet.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { runHere } from "./run-here.ts";

const root = mkdtempSync(join(tmpdir(), "slt-"));
const home = join(root, "home");
let served: Awaited<ReturnType<typeof serve>>;

beforeAll(async () => {
  const open = () => openFleetAndHost({ home, backend: "local" });
  served = await serve({ openFleet: open, home, gateway: { port: 0 }, world: systemWorld() });
  await using lease = await served.fleet.acquire({ thread: "t1" });
  // A file system in memory keeps any 64-bit time.
  const { stderr, exitCode } = await lease.sandbox.exec("echo x > /tmp/late; touch -d @99999999999999 /tmp/late");
  expect({ stderr, exitCode }).toEqual({ stderr: "", exitCode: 0 });
  expect((await lease.sandbox.files.stat("/tmp/late")).modifiedAt).toBeGreaterThan(8.64e15);
});

afterAll(async () => {
  await served.close({ destroy: true });
  rmSync(root, { recursive: true });
});

const cli = (...args: string[]) => runHere(args, { SANDLOT_HOME: home, SANDLOT_URL: served.url });

it("ls lists the file, as a table and as JSON", async () => {
  const table = await cli("ls", "t1:/tmp");
  expect(table).toMatchObject({ code: 0, stderr: "" });
  expect(table.stdout).toContain("+275760-09-13T00:00:00.000Z");
  const { entries } = JSON.parse((await cli("ls", "t1:/tmp", "--json")).stdout) as FileListing;
  expect(entries.map(({ path }) => path)).toContain("/tmp/late");
});

it("the gateway sends the file, without the header that HTTP cannot write", async () => {
  const key = await readOperatorKey(home);
  const url = `${served.url}/v1/threads/t1/files/content?path=${encodeURIComponent("/tmp/late")}`;
  const response = await fetch(url, { headers: { authorization: `Bearer ${key}` } });
  expect([response.status, await response.text()]).toEqual([200, "x\n"]);
  expect(response.headers.get("last-modified")).toBeNull();
});

it("the client reads it", async () => {
  const client = new SandlotClient({ url: served.url, apiKey: (await readOperatorKey(home)) ?? "" });
  await using lease = await client.acquire({ thread: "t1" });
  expect(await lease.sandbox.files.readText("/tmp/late")).toBe("x\n");
});
