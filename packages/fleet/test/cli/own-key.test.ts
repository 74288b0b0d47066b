/** The operator's key of a home goes to a running gateway of that home, and to no other address. */

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { serve } from "../../src/gateway/index.ts";
import { openFleetAndHost } from "../../src/open-fleet.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { startGatewayProcess } from "../gateway/support/gateway-process.ts";
import { runHere } from "./run-here.ts";

const root = mkdtempSync(join(tmpdir(), "slo-"));
const home = join(root, "home");
const seen: (string | undefined)[] = [];
let served: Awaited<ReturnType<typeof serve>>;

beforeAll(async () => {
  const open = () => openFleetAndHost({ home, backend: "memory" });
  served = await serve({ openFleet: open, home, gateway: { port: 0 }, world: systemWorld() });
});
afterAll(async () => {
  await served.close({ destroy: true });
  rmSync(root, { recursive: true });
});

/** A server that is no gateway and records the key it gets. */
async function withForeignServer<T>(port: number, work: (url: string) => Promise<T>): Promise<T> {
  const server: Server = createServer((request, response) => {
    seen.push(request.headers.authorization);
    response.end("{}");
  });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  try {
    return await work(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  } finally {
    await new Promise((resolve) => server.close(resolve));
  }
}

const ps = (url: string, more: Record<string, string> = {}, where = home) =>
  runHere(["ps", "--url", url], { SANDLOT_HOME: where, HOME: root, ...more });

it("reaches the gateway of its home without a key", async () => {
  for (const url of [served.url, served.url.replace("127.0.0.1", "localhost"), `${served.url}/`])
    expect(await ps(url), url).toMatchObject({ code: 0 });
});

it("sends it to no other address, and says how to give a key", async () => {
  await withForeignServer(0, async (url) => {
    for (const command of [["ps"], ["exec", "-t", "t", "--", "true"], ["events"], ["mcp"]]) {
      const { code, stderr } = await runHere([command[0] ?? "", "--url", url, ...command.slice(1)], {
        SANDLOT_HOME: home,
        HOME: root,
      });
      expect(code, command.join(" ")).not.toBe(0);
      expect(stderr).toContain("unauthorized");
      expect(stderr).toContain("SANDLOT_API_KEY");
      expect(stderr).toContain(served.url);
    }
  });
  expect(seen).toEqual([]);
  await withForeignServer(0, (url) => ps(url, { SANDLOT_API_KEY: "slk_mine" }));
  expect(seen).toEqual(["Bearer slk_mine"]);
});

it("sends it to no process that has taken the port of a killed gateway", async () => {
  seen.length = 0;
  const other = join(root, "killed");
  mkdirSync(other);
  const gateway = await startGatewayProcess(other, { port: 0 });
  expect((await ps(gateway.url, {}, other)).code).toBe(0);
  await gateway.kill();
  expect(readdirSync(join(other, "gateways"))).toHaveLength(1);
  await withForeignServer(Number(new URL(gateway.url).port), async (url) => {
    expect(url).toBe(gateway.url);
    expect((await ps(url, {}, other)).stderr).toContain("no gateway of it runs on this machine");
  });
  expect(seen).toEqual([]);
  // The next gateway of that home removes the killed one's leftovers, and its own file when it stops.
  const next = await startGatewayProcess(other, { port: 0 });
  const files = readdirSync(join(other, "gateways"));
  expect(files).toHaveLength(1);
  const path = join(other, "gateways", files[0] ?? "");
  expect(JSON.parse(readFileSync(path, "utf8"))).toMatchObject({ url: next.url });
  expect(statSync(path).mode & 0o777).toBe(0o600);
  await next.stop();
  expect(readdirSync(join(other, "gateways"))).toEqual([]);
}, 60_000);
