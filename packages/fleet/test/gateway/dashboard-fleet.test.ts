/** The overview of a fleet: what a gateway knows of itself, and what it asks the others. */

import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { DashboardFleet, DashboardOverview } from "@sandlot/contract";
import { afterEach, describe, expect, test } from "vitest";
import { PeerOverviews } from "../../src/gateway/dashboard/peer-overviews.ts";
import { PeerCredential } from "../../src/gateway/events/peer-credential.ts";
import { MemoryEntries } from "../../src/store/memory/memory-entries.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { openTwoGateways, type TwoGateways } from "./support/two-gateways.ts";

let two: TwoGateways | null = null;
const servers: Server[] = [];
afterEach(async () => {
  await two?.done();
  two = null;
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});

const fleetOf = (host: TwoGateways["a"], bins = 0) =>
  host.operator.ask<DashboardFleet>(200, "GET", `/v1/dashboard/fleet?bins=${bins}`);

describe("two gateways of one store", () => {
  test("each shows both, with counts, host and heartbeat, and six hours of slices", async () => {
    two = await openTwoGateways();
    const { a, b } = two;
    const exec = (host: TwoGateways["a"], thread: string) =>
      host.operator.ask(200, "POST", `/v1/threads/${thread}/exec`, { json: { command: "true" } });
    await exec(a, "one");
    await exec(b, "two");
    await exec(b, "two");
    for (const [asked, other] of [
      [a, b],
      [b, a],
    ] as const) {
      const { gateways } = await fleetOf(asked, 60);
      expect(gateways.map(({ instance, isSelf }) => [instance, isSelf])).toEqual([
        [asked.fleet.instanceId, true],
        [other.fleet.instanceId, false],
      ]);
      for (const { overview, problem, lastBeatAt, instance } of gateways) {
        expect(problem).toBeNull();
        expect(lastBeatAt).toBeGreaterThan(Date.now() - 60_000);
        expect(overview?.execs.count).toBe(instance === a.fleet.instanceId ? 1 : 2);
        expect(overview?.memory?.totalBytes).toBeGreaterThan(overview?.memory?.usedBytes ?? Number.NaN);
        expect(overview?.disk?.totalBytes).toBeGreaterThan(0);
        const { slices = [] } = overview ?? {};
        expect(slices.reduce((sum, { execs }) => sum + execs, 0)).toBe(overview?.execs.count);
        expect(slices.some(({ memoryBytes }) => memoryBytes > 0)).toBe(true);
      }
    }
    expect((await fleetOf(a)).gateways.every(({ overview }) => overview?.slices.length === 0)).toBe(true);
  });

  test("one that was killed is shown as missing, and then not at all", async () => {
    two = await openTwoGateways();
    const { a, b } = two;
    expect((await fleetOf(a)).gateways).toHaveLength(2);
    await b.kill();
    const { gateways } = await fleetOf(a);
    const missing = gateways.find(({ instance }) => instance === b.fleet.instanceId);
    expect([missing?.overview, missing?.problem]).toEqual([null, "its gateway cannot be reached"]);
    await expect.poll(async () => (await fleetOf(a)).gateways.length, { timeout: 30_000 }).toBe(1);
  });

  test("a gateway that says nowhere where it is, is named with what to set", async () => {
    two = await openTwoGateways({ advertised: false });
    const { gateways } = await fleetOf(two.a);
    expect(gateways[1]?.problem).toContain("gateway.advertise");
  });

  test("a user's key sees none of it", async () => {
    two = await openTwoGateways();
    const user = two.a.operator.as(await two.user("alice"));
    for (const path of ["fleet", "overview"]) await user.ask(403, "GET", `/v1/dashboard/${path}`);
  });
});

describe("another gateway's answer is not trusted:", () => {
  const instance = "i-peer";
  const overview = {
    ...{ instance, version: "1", startedAt: 1, limit: null, pool: {}, poolHits: 0, poolMisses: {}, queued: 0 },
    ...{ acquires: {}, execs: { count: 0, failed: 0, perSecond: 0 }, losses: {}, refusals: [], openStreams: 0 },
    ...{ memory: null, disk: null, processBytes: 0, sliceMs: 10_000, slices: [] },
  } as unknown as DashboardOverview;

  async function answerOf(body: string | null, status = 200): Promise<DashboardFleet["gateways"][number] | undefined> {
    let seen = "";
    const server = createServer((request, response) => {
      seen = request.headers.authorization ?? "";
      if (body !== null) response.writeHead(status).end(body);
    });
    servers.push(server);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const credential = await PeerCredential.open(new MemoryEntries());
    const peer = { instance, address, lastBeatAt: 1, engines: [], otherEngines: [] } as never;
    const parts = { world: systemWorld(), peers: async () => [peer], credential };
    // Beyond loopback, nothing on this host is asked.
    const elsewhere = new PeerOverviews({ ...parts, ownAddress: "https://gateway.example" });
    expect((await elsewhere.read(0))[0]?.problem).toContain("loopback of another host");
    expect(seen).toBe("");
    const [shown] = await new PeerOverviews({ ...parts, ownAddress: "http://127.0.0.1:1" }).read(0);
    expect(seen).toBe(`Bearer ${credential.for(instance, "overview")}`);
    return shown;
  }

  test.each([
    ["a page of something else", "<html>", 200, /JSON|token/i],
    ["an overview of another shape", JSON.stringify({ instance }), 200, /another version/],
    ["another gateway", JSON.stringify({ ...overview, instance: "i-other" }), 200, /another gateway answers/],
    ["too much", `"${"x".repeat(3_000_000)}"`, 200, /large/],
    ["a refusal", "{}", 401, /answered 401/],
    ["nothing", null, 200, /within 2000 ms/],
  ])("%s", async (_name, body, status, problem) => {
    const shown = await answerOf(body, status);
    expect(shown?.overview).toBeNull();
    expect(shown?.problem).toMatch(problem);
  });

  test("and the right one is shown", async () => {
    expect((await answerOf(JSON.stringify(overview)))?.overview).toEqual(overview);
  });
});
