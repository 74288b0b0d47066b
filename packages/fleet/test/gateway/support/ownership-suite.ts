/**
 * The suite of DeerFlow's ownership scenarios: two gateways over one store and one engine. DeerFlow keeps a lease per container
 * that says which gateway may end it; its default store is memory, with which each gateway takes the other's containers
 * for orphans and ends them.
 */

import { afterEach, describe, expect, it } from "vitest";
import type { Caller } from "./stage.ts";
import { type Host, LIFETIME_MS, openTwoGateways, type TwoGateways, type TwoGatewaysOptions } from "./two-gateways.ts";

const exec = (caller: Caller, thread: string, command = "true") =>
  caller.ask<{ stdout: string }>(200, "POST", `/v1/threads/${thread}/exec`, { json: { command } });
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const write = (caller: Caller, thread: string) => exec(caller, thread, "echo mine > /mnt/user-data/workspace/file");
const read = async (caller: Caller, thread: string) =>
  (await exec(caller, thread, "cat /mnt/user-data/workspace/file")).stdout;
/** Sandboxes by thread: the id and the generation, which change when one was ended and made again. */
async function sandboxes({ fleet }: Host): Promise<Record<string, string>> {
  const all = await fleet.list();
  return Object.fromEntries(all.map(({ thread, sandboxId, generation }) => [thread, `${sandboxId} ${generation}`]));
}
export interface PairOptions {
  /** A connection to the store of one pair of gateways. Default: a row store in memory. */
  readonly openStore?: () => NonNullable<TwoGatewaysOptions["openStore"]>;
  readonly lifetimeMs?: number;
}

export function describeOwnership(name: string, { openStore, lifetimeMs = LIFETIME_MS }: PairOptions = {}): void {
  /** Several sessions' lifetimes, and many rounds of housekeeping. */
  const longMs = 3.5 * lifetimeMs;
  describe(`DeerFlow's ownership scenarios on ${name}`, () => {
    let two: TwoGateways | null = null;
    afterEach(async () => {
      await two?.done();
      two = null;
    });
    const open = async (options: TwoGatewaysOptions = {}) => {
      two = await openTwoGateways({ ...options, lifetimeMs, ...(openStore && { openStore: openStore() }) });
      return two;
    };

    it("two gateways: neither ends the other's sandboxes, in use or parked", async () => {
      const { a, b } = await open({ fleet: { orphanTimeoutMs: lifetimeMs } });
      await write(a.operator, "of-a");
      await write(b.operator, "of-b");
      const lease = await a.operator.ask<{ leaseId: string }>(201, "POST", "/v1/threads/held/leases", {
        json: { ttlMs: 60_000 },
      });
      const before = await sandboxes(a);
      expect(Object.keys(before).sort()).toEqual(["held", "of-a", "of-b"]);
      await pause(longMs);
      expect(await sandboxes(a)).toEqual(before);
      expect(await sandboxes(b)).toEqual(before);
      expect(await read(a.operator, "of-a")).toBe("mine\n");
      expect(await read(b.operator, "of-b")).toBe("mine\n");
      expect((await a.operator.call("DELETE", `/v1/leases/${lease.leaseId}`)).status).toBe(204);
    });

    it("two gateways: both use one thread's sandbox, and neither takes it from the other", async () => {
      const { a, b } = await open();
      const runs = Array.from({ length: 8 }, (_, index) => exec(index % 2 === 0 ? a.operator : b.operator, "shared"));
      await Promise.all(runs);
      expect(Object.keys(await sandboxes(a))).toEqual(["shared"]);
      await write(a.operator, "shared");
      expect(await read(b.operator, "shared")).toBe("mine\n");
    });

    it("two gateways: one that stops hands its sandboxes over and ends none", async () => {
      const { a, b } = await open();
      await write(a.operator, "of-a");
      await write(b.operator, "of-b");
      const before = await sandboxes(b);
      await a.gateway.close();
      await a.fleet.close({ drainMs: 0 });
      expect(await sandboxes(b)).toEqual(before);
      expect(await read(b.operator, "of-a")).toBe("mine\n");
      expect(await sandboxes(b)).toEqual(before);
    });

    it("one takes over after a crash: the sandbox goes on with its files and its generation", async () => {
      const { a, b } = await open();
      await write(a.operator, "of-a");
      const before = await sandboxes(b);
      await a.kill();
      expect(await read(b.operator, "of-a")).toBe("mine\n");
      await pause(longMs);
      expect(await sandboxes(b)).toEqual(before);
      expect((await b.fleet.peers()).map(({ instance }) => instance)).not.toContain(a.fleet.instanceId);
      expect(await read(b.operator, "of-a")).toBe("mine\n");
    });

    it("a gateway that stood still does not end what another took over meanwhile", async () => {
      const { a, b } = await open();
      await write(a.operator, "of-a");
      const before = await sandboxes(b);
      a.world.stop();
      await pause(longMs);
      await write(b.operator, "of-a");
      a.world.goOn();
      await pause(longMs);
      expect(await sandboxes(b)).toEqual(before);
      expect(await read(b.operator, "of-a")).toBe("mine\n");
    });

    it("destroying at one gateway what another uses is refused, and forced it is lost there with a reason", async () => {
      const { a, b } = await open();
      const { leaseId } = await a.operator.ask<{ leaseId: string }>(201, "POST", "/v1/threads/held/leases", {
        json: { ttlMs: 60_000 },
      });
      const refused = await b.operator.ask<{ error: { code: string } }>(409, "DELETE", "/v1/threads/held");
      expect(refused.error.code).toBe("sandbox_in_use");
      await b.operator.ask(200, "DELETE", "/v1/threads/held?force=true");
      const lost = await a.operator.call("PUT", `/v1/leases/${leaseId}`);
      expect([404, 410]).toContain(lost.status);
    });
  });
}
