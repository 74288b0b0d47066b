/**
 * A gateway keeps a thread's lease for a second after its last request, without any visible effect: on a stop, on a
 * caller that waits for room, or on the end of the gateway.
 */

import type { ThreadId, UserId } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import type { FleetConfig } from "../../src/config/fleet-config.ts";
import { resolveGatewaySettings } from "../../src/config/gateway-settings.ts";
import { ThreadUse } from "../../src/gateway/thread-use.ts";
import { newStage } from "../support/stage.ts";
import { watched } from "../support/virtual-time.ts";

const KEEP = resolveGatewaySettings();
const keyOf = (thread: string) => ({ user: "default" as UserId, thread: thread as ThreadId });

async function scene(config: FleetConfig = {}) {
  const stage = newStage(config);
  const instance = await stage.open();
  const threads = new ThreadUse(instance.fleet, instance.world, KEEP);
  /** The steps of a route: acquire a lease, run one command, release the lease. */
  const request = async (thread: string) => {
    const lease = await stage.until(threads.acquire(keyOf(thread), "a request"));
    await stage.until(lease.sandbox.exec("true"));
    await stage.until(threads.release(lease));
  };
  const holders = async (thread: string) => Object.keys((await stage.recordOf(thread))?.holders ?? {});
  return { stage, threads, request, holders, ...instance };
}

describe("a lease that a request gave back", () => {
  test("spares the next request the hold, the attach and giving both back", async () => {
    const { stage, request, store, backend, holders, eventsOf } = await scene();
    await request("t1");
    store.forgetCalls();
    const attached = backend.callsOf("attach").length;
    for (let n = 0; n < 5; n += 1) {
      await stage.advance(900);
      await request("t1");
    }
    expect(store.callsOf("take")).toEqual([]);
    expect(store.callsOf("unhold")).toEqual([]);
    expect(backend.callsOf("attach")).toHaveLength(attached);
    expect(await holders("t1")).toHaveLength(1);
    await stage.advance(1_100);
    expect(await holders("t1")).toEqual([]);
    expect(eventsOf("sandbox-parked")).toHaveLength(1);
    // Every request had its own lease; none is left.
    expect(eventsOf("lease-acquired")).toHaveLength(6);
    expect(eventsOf("lease-released")).toHaveLength(6);
  });

  test("is not kept twice, also when requests overlap", async () => {
    const { stage, threads, holders, eventsOf } = await scene();
    const leases = [];
    for (let n = 0; n < 3; n += 1) leases.push(await stage.until(threads.acquire(keyOf("t1"), "a request")));
    for (const lease of leases) await stage.until(threads.release(lease));
    for (const lease of leases) await stage.until(threads.release(lease));
    expect(eventsOf("lease-released")).toHaveLength(2);
    expect(await holders("t1")).toHaveLength(1);
    await stage.advance(1_100);
    expect(eventsOf("lease-released")).toHaveLength(3);
    expect(await holders("t1")).toEqual([]);
  });

  test("does not count as use when the thread is stopped or removed", async () => {
    const { stage, threads, request } = await scene();
    await request("t1");
    expect(await stage.until(threads.destroy(keyOf("t1"), {}))).toBe("stopped");
    expect(await stage.recordOf("t1")).toBeNull();
    await request("t1");
    expect(await stage.until(threads.destroy(keyOf("t1"), { purge: true }))).toBe("stopped");
    expect(stage.objects()).toEqual([]);
  });

  test("delays a stop at another gateway, which is refused only where the thread is in use", async () => {
    const { stage, request, holders } = await scene();
    const other = await stage.open();
    const elsewhere = new ThreadUse(other.fleet, other.world, KEEP);
    await request("t1");
    expect(await holders("t1")).toHaveLength(1);
    expect(await stage.until(elsewhere.destroy(keyOf("t1"), {}))).toBe("stopped");
    const held = await stage.until(other.fleet.acquire({ thread: "t2" }));
    const refusal = await stage.until(elsewhere.destroy(keyOf("t2"), {}).catch((error: unknown) => error));
    expect(refusal).toMatchObject({ code: "sandbox_in_use" });
    await stage.until(held.release());
  });

  test("does not keep a stop at another gateway waiting whose caller has left", async () => {
    const { stage, request } = await scene();
    const other = await stage.open();
    const elsewhere = new ThreadUse(other.fleet, other.world, KEEP);
    await request("t1");
    const gone = new AbortController();
    const stopping = watched(elsewhere.destroy(keyOf("t1"), {}, gone.signal));
    await stage.advance(100);
    expect(stopping.state).toBe("pending");
    gone.abort(new Error("the caller has gone away"));
    await stage.settle();
    expect(stopping.state).toBe("rejected");
    await expect(stopping.promise).rejects.toThrow("the caller has gone away");
    await stage.advance(2_000);
    expect(await stage.recordOf("t1")).not.toBeNull();
  });

  test("is not kept where the configuration says so", async () => {
    const stage = newStage();
    const { fleet, world } = await stage.open();
    const threads = new ThreadUse(fleet, world, resolveGatewaySettings({ keepLeasesMs: 0 }));
    await stage.until(threads.release(await stage.until(threads.acquire(keyOf("t1"), "a request"))));
    expect((await stage.recordOf("t1"))?.holders).toEqual({});
  });

  test("is not kept while its thread is being stopped, so a request that ends meanwhile keeps nothing", async () => {
    const { stage, threads, store, holders } = await scene();
    const lease = await stage.until(threads.acquire(keyOf("t1"), "a request"));
    const gate = store.hang("find");
    const destroyed = threads.destroy(keyOf("t1"), {});
    await stage.settle();
    await stage.until(threads.release(lease));
    expect(await holders("t1")).toEqual([]);
    gate.open();
    expect(await stage.until(destroyed)).toBe("stopped");
  });

  test("gives way to a caller that waits for room", async () => {
    const { stage, request, fleet } = await scene({ limits: { max: 1, onFull: "wait", queueMax: 4 } });
    await request("t1");
    const other = watched(fleet.acquire({ thread: "t2" }));
    await stage.advance(500);
    expect(other.state).toBe("fulfilled");
    expect(await stage.recordOf("t1")).toBeNull();
    await (await fleet.acquire({ thread: "t2" })).release();
  });

  test("gives way to a request without a queue", async () => {
    const { stage, request } = await scene({ limits: { max: 1, onFull: "reject" } });
    await request("t1");
    await request("t2");
    expect(await stage.recordOf("t1")).toBeNull();
  });

  test("does not keep a sandbox past its lifetime", async () => {
    const { stage, request, eventsOf } = await scene({ maxLifetimeMs: 10_000 });
    await request("t1");
    for (let n = 0; n < 14; n += 1) {
      await stage.advance(900);
      await request("t1");
    }
    expect(eventsOf("sandbox-created")).toHaveLength(2);
  });

  test("is left for the next one when its sandbox was lost", async () => {
    const { stage, request, fleet, eventsOf } = await scene();
    await request("t1");
    stage.killSandbox((await fleet.find({ thread: "t1" }))?.sandboxId ?? "");
    await stage.advance(100);
    await request("t1");
    expect(eventsOf("sandbox-created")).toHaveLength(2);
    expect(eventsOf("lease-acquired")).toHaveLength(2);
    await stage.advance(1_100);
    expect(eventsOf("lease-released")).toHaveLength(2);
  });

  test("stays when a request on the lost sandbox before it ends late", async () => {
    const { stage, threads, holders, eventsOf } = await scene();
    const lost = await stage.until(threads.acquire(keyOf("t1"), "a request"));
    stage.killSandbox(lost.sandbox.id);
    await stage.advance(100);
    const next = await stage.until(threads.acquire(keyOf("t1"), "a request"));
    expect(next.generation).toBeGreaterThan(lost.generation);
    await stage.until(threads.release(next));
    await stage.until(threads.release(lost));
    expect(await holders("t1")).toHaveLength(1);
    await stage.advance(1_100);
    expect(await holders("t1")).toEqual([]);
    expect(eventsOf("lease-released")).toHaveLength(2);
  });

  test("goes with the gateway, which waits for the requests that are under way", async () => {
    const { stage, threads, request, holders } = await scene();
    await request("t1");
    const lease = await stage.until(threads.acquire(keyOf("t2"), "a request"));
    const closing = watched(threads.close());
    await stage.settle();
    expect(await holders("t1")).toEqual([]);
    expect(closing.state).toBe("pending");
    await stage.until(threads.release(lease));
    await stage.settle();
    expect(closing.state).toBe("fulfilled");
    expect(await holders("t2")).toEqual([]);
  });
});
