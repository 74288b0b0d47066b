/** The suite of what two gateways on two hosts share: keys, links, leases, uploads, events, rate limits and audit logs. */

import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { AIO_TUNNEL_PORT } from "@sandlot/contract";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import type { Backend, Target } from "../../../src/backend/backend.ts";
import type { PairOptions } from "./ownership-suite.ts";
import { requestPreview } from "./preview.ts";
import { richBackend } from "./rich-backend.ts";
import { uploadTests } from "./shared-uploads.ts";
import { sseEvents } from "./sse.ts";
import type { Caller } from "./stage.ts";
import { LIFETIME_MS, openTwoGateways, type TwoGateways, type TwoGatewaysOptions } from "./two-gateways.ts";

const exec = (caller: Caller, thread: string, command = "true") =>
  caller.ask<{ stdout: string }>(200, "POST", `/v1/threads/${thread}/exec`, { json: { command } });
const statusOf = async (response: Promise<Response>) => {
  const { status, body } = await response;
  await body?.cancel();
  return status;
};
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

export function describeSharing(name: string, { openStore, lifetimeMs = LIFETIME_MS }: PairOptions = {}): void {
  describe(`two gateways on ${name}`, () => {
    let two: TwoGateways | null = null;
    afterEach(async () => {
      await two?.done();
      two = null;
    });
    const open = async (options: TwoGatewaysOptions = {}) => {
      two = await openTwoGateways({ ...options, lifetimeMs, ...(openStore && { openStore: openStore() }) });
      const key = await two.user("alice");
      const { a, b } = two;
      return { ...two, key, atA: a.operator.as(key), atB: b.operator.as(key) };
    };

    /** What a port inside answers, for previews and the AIO API. */
    let inner: Server;
    let port = 0;
    beforeAll(async () => {
      inner = createServer((request, response) => {
        response.write(`you asked ${request.url}`);
        if (request.url !== "/stream") response.end();
      });
      await new Promise<void>((resolve) => inner.listen(0, "127.0.0.1", resolve));
      port = (inner.address() as AddressInfo).port;
    });
    afterAll(async () => {
      inner.closeAllConnections();
      await new Promise((resolve) => inner.close(resolve));
    });

    describe("keys", () => {
      it("a key made at one works at the other, and its revocation there ends it here", async () => {
        const { a, b, atA, atB, key } = await open();
        await exec(atA, "t1");
        await exec(atB, "t1");
        const keyId = key.slice(4, 16);
        const { keys } = await b.operator.ask<{ keys: { id: string }[] }>(200, "GET", "/v1/keys");
        expect(keys.map(({ id }) => id)).toContain(keyId);
        expect((await b.operator.call("DELETE", `/v1/keys/${keyId}`)).status).toBe(204);
        for (const at of [atA, atB]) await expect.poll(() => statusOf(at.call("GET", "/v1/key"))).toBe(401);
        await a.operator.ask(200, "GET", "/v1/key");
      });

      it("each home's operator key works at both", async () => {
        const { a, b } = await open();
        for (const [url, key] of [
          [a.gateway.url, b.operator.key],
          [b.gateway.url, a.operator.key],
        ]) {
          const response = await fetch(`${url}/v1/key`, { headers: { authorization: `Bearer ${key}` } });
          expect(response.status).toBe(200);
          expect(await response.json()).toMatchObject({ scope: "operator" });
        }
      });
    });

    describe("links", () => {
      it("a preview link made at one leads to the port at the other, and ends with its key at both", async () => {
        const { a, b, atA, key } = await open({ enrich: richBackend });
        await exec(atA, "t1");
        const made = await atA.ask<{ url: string; direct: { headers: Record<string, string> } }>(
          ...([201, "POST", `/v1/threads/t1/ports/${port}/links`, { json: { ttlMs: 60_000 } }] as const),
        );
        const ask = (gateway: { previewUrl: string }) =>
          requestPreview(gateway.previewUrl, new URL("http://any.localhost/x"), made.direct.headers);
        expect(await ask(a.gateway)).toMatchObject({ status: 200, body: "you asked /x" });
        expect(await ask(b.gateway)).toMatchObject({ status: 200, body: "you asked /x" });
        // Behind one name, as a load balancer has it, the link is a link of both.
        const byName = await requestPreview(b.gateway.previewUrl, new URL(made.url));
        expect(byName.status).toBe(200);
        await b.gateway.keys.revoke(key.slice(4, 16));
        for (const { gateway } of [a, b]) await expect.poll(async () => (await ask(gateway)).status).toBe(401);
      });

      it("an AIO URL made at one works at the other; revoked there, open requests here end and new ones fail", async () => {
        const { a, b, atA, atB } = await open({ enrich: (backend) => servingAio(backend, port) });
        await exec(atA, "t1");
        const { url, linkId } = await atA.ask<{ url: string; linkId: string }>(201, "POST", "/v1/threads/t1/aio");
        const at = ({ previewUrl }: { previewUrl: string }, path: string) =>
          `${new URL(previewUrl).origin}${new URL(url).pathname}${path}`;
        for (const { gateway } of [a, b]) expect((await fetch(at(gateway, "/v1/x"))).status).toBe(200);
        const stream = await fetch(at(a.gateway, "/stream"));
        const ended = stream.text().then(
          () => "ended",
          () => "cut off",
        );
        expect(await atB.ask(200, "DELETE", `/v1/threads/t1/aio/${linkId}`)).toEqual({ revoked: 1 });
        expect((await fetch(at(a.gateway, "/v1/x"))).status).toBe(401);
        const late = pause(30_000).then(() => "still open");
        expect(await Promise.race([ended, late])).toBe("cut off");
      });
    });

    describe("leases", () => {
      interface LeaseReply {
        readonly leaseId: string;
        readonly expiresAt: number;
        readonly generation: number;
      }
      const take = (caller: Caller, ttlMs: number) =>
        caller.ask<LeaseReply>(201, "POST", "/v1/threads/t1/leases", { json: { ttlMs } });

      it("a lease taken at one is used, renewed and released at the other", async () => {
        const { a, atA, atB, b } = await open();
        const { leaseId, generation } = await take(atA, 20_000);
        await exec(atA, "t1", "echo kept > /mnt/user-data/workspace/file");
        expect((await exec(atB, "t1", "cat /mnt/user-data/workspace/file")).stdout).toBe("kept\n");
        const renewed = await atB.ask<LeaseReply>(200, "PUT", `/v1/leases/${leaseId}`);
        expect(renewed.expiresAt).toBeGreaterThan(Date.now() + 15_000);
        // Another user cannot, wherever it asks.
        const bob = b.operator.as((await b.gateway.keys.create({ scope: "user", user: "bob" })).key);
        await bob.ask(404, "PUT", `/v1/leases/${leaseId}`);
        await bob.ask(404, "DELETE", `/v1/leases/${leaseId}`);
        expect((await atB.call("DELETE", `/v1/leases/${leaseId}`)).status).toBe(204);
        await atA.ask(404, "PUT", `/v1/leases/${leaseId}`);
        const [sandbox] = await a.fleet.list();
        expect(sandbox?.holders).not.toContain(leaseId);
        expect(sandbox?.generation).toBe(generation);
      });

      it("a lease survives the gateway that gave it", async () => {
        const { a, b, atA, atB } = await open();
        const { leaseId, generation } = await take(atA, 60_000);
        await exec(atA, "t1", "echo kept > /mnt/user-data/workspace/file");
        await a.kill();
        await atB.ask(200, "PUT", `/v1/leases/${leaseId}`);
        expect((await exec(atB, "t1", "cat /mnt/user-data/workspace/file")).stdout).toBe("kept\n");
        // Past the end of A's session, what it held is the lease's alone.
        await pause(2.7 * lifetimeMs);
        await atB.ask(200, "PUT", `/v1/leases/${leaseId}`);
        const [sandbox] = await b.fleet.list();
        expect(sandbox).toMatchObject({ generation, state: "leased" });
        expect(sandbox?.holders).toContain(leaseId);
        expect((await atB.call("DELETE", `/v1/leases/${leaseId}`)).status).toBe(204);
        await atB.ask(404, "PUT", `/v1/leases/${leaseId}`);
      });

      it("a lease that is not renewed after its gateway died expires at the other", async () => {
        const { a, b, atA } = await open();
        const { leaseId } = await take(atA, 2_000);
        await a.kill();
        for (let turn = 0; turn < 3_000; turn += 1) {
          const [sandbox] = await b.fleet.list();
          if (sandbox?.state === "parked") return;
          await pause(20);
        }
        throw new Error(`the lease ${leaseId} still holds its sandbox: ${JSON.stringify(await b.fleet.list())}`);
      });
    });

    describe("limits and logs", () => {
      it("a key that floods both gets the average of one, within the stated error", async () => {
        const rate = { perKeyPerSecond: 100, perUserPerSecond: 10_000, burst: 100 };
        const { atA, atB } = await open({ settings: { rate } });
        let [asked, admitted] = [0, 0];
        const begunAt = performance.now();
        const secondsSince = () => (performance.now() - begunAt) / 1_000;
        const flood = async (caller: Caller) => {
          while (secondsSince() < 8) {
            asked += 1;
            const response = await caller.call("GET", "/v1/key");
            await response.body?.cancel();
            if (response.status === 200) admitted += 1;
            else await pause(5);
          }
        };
        await Promise.all([atA, atA, atB, atB].map(flood));
        const seconds = secondsSince();
        expect(admitted).toBeLessThanOrEqual(100 * seconds * 1.01 + 2 * 100 + 100 * 3);
        // A machine that is busy may ask for less than the limit.
        expect(admitted).toBeGreaterThan(0.7 * Math.min(100 * seconds, asked));
      });

      it("an audit log says whose it is, and has the requests of its own gateway", async () => {
        const { a, b, atA, atB } = await open();
        await exec(atA, "at-a");
        await exec(atB, "at-b");
        for (const [host, thread] of [
          [a, "at-a"],
          [b, "at-b"],
        ] as const) {
          const audit = await host.operator.ask<{ gateway: string; entries: { thread: string; gateway: string }[] }>(
            ...([200, "GET", "/v1/audit"] as const),
          );
          expect(audit.gateway).toBe(host.fleet.instanceId);
          expect(new Set(audit.entries.map((entry) => entry.gateway))).toEqual(new Set([host.fleet.instanceId]));
          expect(audit.entries.map((entry) => entry.thread)).toContain(thread);
          expect(audit.entries.map((entry) => entry.thread)).not.toContain(thread === "at-a" ? "at-b" : "at-a");
        }
      });
    });

    describe("uploads", () => uploadTests(open));
    describe("events", () => {
      it("a stream at one has the events of the other, and leaves nothing out without a word", async () => {
        const { a, b, atA, atB } = await open();
        const stop = new AbortController();
        const stream = await a.operator.call("GET", "/v1/events", { signal: stop.signal });
        await exec(atA, "at-a");
        await exec(atB, "at-b");
        const seen = new Map<string, unknown>();
        for await (const { event, data } of sseEvents(stream)) {
          expect(event).not.toBe("gap");
          if (event === "lease-acquired") seen.set(String(data.thread), data.instance);
          if (seen.size === 2) break;
        }
        stop.abort();
        expect(Object.fromEntries(seen)).toEqual({ "at-a": a.fleet.instanceId, "at-b": b.fleet.instanceId });
      });
    });
  });
}

/** Its AIO API is the server at `port`. */
function servingAio(backend: Backend, port: number): Backend {
  return new Proxy(richBackend(backend), {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (name !== "attach") return typeof value === "function" ? value.bind(target) : value;
      return async (to: Target, signal: AbortSignal) => {
        const attachment = await target.attach(to, signal);
        const { connect } = attachment;
        if (connect === undefined) throw new Error("the backend has no previews");
        return {
          ...attachment,
          connect: (asked: number, until: AbortSignal) => connect(asked === AIO_TUNNEL_PORT ? port : asked, until),
        };
      };
    },
  });
}
