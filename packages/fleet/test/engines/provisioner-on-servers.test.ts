/** The provisioner of two gateways, each on a host of its own, over a real server that both share. */

import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { type InnerAio, openInnerAio } from "../gateway/support/aio-backend.ts";
import { DeerFlowClient, type DeerFlowSandbox } from "../gateway/support/deerflow-client.ts";
import type { Caller } from "../gateway/support/stage.ts";
import { type Host, openTwoGateways, type TwoGateways } from "../gateway/support/two-gateways.ts";
import { type DeathAt, MortalHost } from "./mortal-host.ts";
import { newPlace, onEachServer, type SharedServer } from "./shared-stores.ts";

const PATIENT = { timeout: 60_000 };
/** For tests in which a lease ends. */
const SHORT_MS = 8_000;
const LONG_MS = 600_000;

/** On Redis only what its own way of writing could change. */
const KILLED_CREATES: Readonly<Record<SharedServer["name"], readonly DeathAt[]>> = {
  postgres: [
    { step: "take", when: "after" },
    { step: "publish", when: "before" },
    { step: "publish", when: "after" },
    { step: "grantLease", when: "before" },
    { step: "grantLease", when: "after" },
    { step: "entries.put", when: "before" },
    { step: "entries.put", when: "after" },
  ],
  redis: [
    { step: "publish", when: "after" },
    { step: "entries.put", when: "before" },
    { step: "entries.put", when: "after" },
  ],
};
const KILLED_DELETES: Readonly<Record<SharedServer["name"], readonly DeathAt[]>> = {
  postgres: [
    { step: "stop", when: "before" },
    { step: "stop", when: "after" },
    { step: "remove", when: "before" },
    { step: "entries.delete", when: "before" },
  ],
  redis: [{ step: "entries.delete", when: "before" }],
};

let inner: InnerAio;
beforeAll(async () => {
  inner = await openInnerAio();
});
afterAll(() => inner.close());

const look = async (url: string) => (await fetch(`${url}/v1/sandbox`)).status;
const pathOf = ({ sandbox_url }: DeerFlowSandbox) => new URL(sandbox_url).pathname;
/** The same URL, at another gateway. */
const at = ({ gateway }: Host, made: DeerFlowSandbox) => `${gateway.previewUrl}${pathOf(made)}`;

function suites({ name, open, signal }: SharedServer): void {
  describe(`the provisioner of two gateways on ${name}`, () => {
    let two: TwoGateways | null = null;
    afterEach(async () => {
      await two?.done();
      two = null;
    });

    const openTwo = async ({ leaseMs, mortal }: { leaseMs: number; mortal?: MortalHost }) => {
      const place = newPlace();
      two = await openTwoGateways({
        // Of a busy machine: a third of it is how long the server may take for an answer.
        lifetimeMs: mortal === undefined ? 9_000 : 6_000,
        settings: { provisioner: { leaseMs }, keepLeasesMs: 0, drainMs: 500 },
        fleet: { idleTimeoutMs: 500 },
        enrich: (backend, host) =>
          inner.enrich(host === "a" && mortal !== undefined ? mortal.backend(backend) : backend),
        async openStore(world, timeoutMs) {
          const store = await open(place, world, timeoutMs);
          return world.identity.bootId === "host-a" && mortal !== undefined ? mortal.store(store) : store;
        },
      });
      const { a, b, entries } = two;
      const { key } = await a.gateway.keys.create({ scope: "platform" });
      const client = ({ gateway }: Host) => new DeerFlowClient(gateway.url, key);
      const records = async () => (await entries.list("provisioned/")).length;
      const caller = (host: Host): Caller => host.operator.as(key);
      return { a, b, key, records, caller, atA: client(a), atB: client(b) };
    };

    it("a sandbox made at one is shown, listed, used, kept and ended at the other, with one URL and one lease", async () => {
      const { a, b, atA, atB, caller, records } = await openTwo({ leaseMs: SHORT_MS });
      const made = await atA.create("t1", "s", { user: "ann" });
      const [found, again] = [await atB.discover("s"), await atB.create("t1", "s", { user: "ann" })];
      const listed = await atB.listRunning();
      expect([found, again, ...listed].map((one) => one && pathOf(one))).toEqual(Array(3).fill(pathOf(made)));
      expect(await Promise.all([a, b].map((host) => look(at(host, made))))).toEqual([200, 200]);

      // Past the time of the lease and of an idle sandbox, by use at the other gateway only.
      const until = Date.now() + 2 * SHORT_MS;
      while (Date.now() < until) expect(await atB.isAlive("s")).toBe(true);
      const [summary] = await b.fleet.list();
      const instances = [a, b].map(({ fleet }) => fleet.instanceId as string);
      expect(summary?.holders.filter((holder) => !instances.includes(holder))).toHaveLength(1);

      await caller(b).ask(200, "DELETE", "/api/sandboxes/s");
      for (const client of [atA, atB])
        expect([await client.isAlive("s"), await client.listRunning()]).toEqual([false, []]);
      expect(await Promise.all([a, b].map((host) => look(at(host, made))))).toEqual([401, 401]);
      expect([await records(), await b.fleet.list()]).toEqual([0, []]);
    }, 120_000);

    it("requests for one id at both at the same time get one sandbox, one URL and one record", async () => {
      const { a, b, atA, atB, records } = await openTwo({ leaseMs: LONG_MS });
      for (let round = 0; round < 3; round += 1) {
        const ask = (_: unknown, index: number) => (index % 2 === 0 ? atA : atB).create(null, `s${round}`);
        const made = await Promise.all(Array.from({ length: 8 }, ask));
        expect(new Set(made.map(pathOf)).size).toBe(1);
        expect([await records(), (await a.fleet.list()).length]).toEqual([round + 1, round + 1]);
        const [first] = made;
        if (first === undefined) throw new Error("eight were asked for");
        expect(await Promise.all([a, b].map((host) => look(at(host, first))))).toEqual([200, 200]);
      }
    }, 120_000);

    it("a revoked key ends its URLs at both, and another key takes the thread over", async () => {
      const { a, b, key, atA, records } = await openTwo({ leaseMs: LONG_MS });
      const made = await atA.create("t1", "s");
      const { key: later } = await b.gateway.keys.create({ scope: "platform" });
      await b.gateway.keys.revoke(key.slice(4, 16));
      for (const host of [a, b]) await expect.poll(() => look(at(host, made)), PATIENT).toBe(401);
      const next = await new DeerFlowClient(a.gateway.url, later).create("t1", "s");
      expect(pathOf(next)).not.toBe(pathOf(made));
      expect([await look(at(b, next)), await look(at(b, made)), (await b.fleet.list()).length]).toEqual([200, 401, 1]);
      expect(await records()).toBe(2);
    }, 120_000);

    it.each(KILLED_CREATES[name])(
      "a gateway killed in a create, $when $step: the other one answers, and nothing is left",
      async (plan) => {
        const mortal = new MortalHost();
        const { a, b, atB, caller, records } = await openTwo({ leaseMs: SHORT_MS, mortal });
        const [asked, forgotten] = [{ sandbox_id: "asked" }, { sandbox_id: "forgotten" }];
        const died = mortal.dieAt(plan);
        const lost = [asked, forgotten].map((json) =>
          caller(a)
            .call("POST", "/api/sandboxes", { json })
            .then(({ status }) => status),
        );
        await died;
        expect((await Promise.all(lost)).filter((status) => status === 200)).toEqual([]);
        await a.kill();
        // One client asks again, and goes on; the other one has gone away.
        await atB.create(null, "asked");
        const threads = async () => {
          expect(await atB.isAlive("asked")).toBe(true);
          return (await b.fleet.list()).map(({ thread }) => thread);
        };
        await expect.poll(threads, PATIENT).toEqual(["asked"]);
        expect(await atB.isAlive("forgotten")).toBe(false);
        await caller(b).ask(200, "DELETE", "/api/sandboxes/asked");
        await caller(b).ask(200, "DELETE", "/api/sandboxes/forgotten");
        expect([await b.fleet.list(), await records(), await b.fleet.audit()]).toEqual([[], 0, []]);
      },
      120_000,
    );

    it.each(KILLED_DELETES[name])(
      "a gateway killed in a delete, $when $step: the other one says the truth, and nothing is left",
      async (plan) => {
        const mortal = new MortalHost();
        const { a, b, atA, atB, caller, records } = await openTwo({ leaseMs: SHORT_MS, mortal });
        const made = await atA.create("t1", "s", { user: "ann" });
        const died = mortal.dieAt(plan);
        const lost = caller(a)
          .call("DELETE", "/api/sandboxes/s")
          .then(({ status }) => status);
        await died;
        expect(await lost).not.toBe(200);
        await a.kill();
        expect([await atB.isAlive("s"), await look(at(b, made))]).toEqual(
          plan.step === "stop" && plan.when === "before" ? [true, 200] : [false, 410],
        );
        await expect
          .poll(() => caller(b).ask<{ stopped: boolean }>(200, "DELETE", "/api/sandboxes/s"), PATIENT)
          .toMatchObject({ stopped: true });
        expect([await atB.isAlive("s"), await look(at(b, made))]).toEqual([false, 401]);
        expect([await b.fleet.list(), await records(), await b.fleet.audit()]).toEqual([[], 0, []]);
      },
      120_000,
    );

    it("a server that stops answering: every call ends within the client's own time, and all is well after it", async () => {
      const { b, atA, caller } = await openTwo({ leaseMs: LONG_MS });
      const made = await atA.create("t1", "s");
      const timed = async (limitMs: number, method: string, path: string, json?: object) => {
        const began = performance.now();
        const more = json === undefined ? {} : { json };
        const { status } = await caller(b).call(method, path, { ...more, signal: AbortSignal.timeout(limitMs) });
        expect([method, path, status >= 500, performance.now() - began < limitMs]).toEqual([method, path, true, true]);
      };
      expect(await look(at(b, made))).toBe(200);
      signal("SIGSTOP");
      try {
        await Promise.all([
          timed(10_000, "GET", "/api/sandboxes/s"),
          timed(10_000, "GET", "/api/sandboxes"),
          timed(15_000, "DELETE", "/api/sandboxes/other"),
          timed(30_000, "POST", "/api/sandboxes", { sandbox_id: "later" }),
        ]);
      } finally {
        signal("SIGCONT");
      }
      const answer = () =>
        caller(b)
          .call("GET", "/api/sandboxes/s")
          .then(({ status }) => status);
      await expect.poll(answer, PATIENT).not.toBe(503);
    }, 180_000);
  });
}

onEachServer("the provisioner of two gateways", suites);
