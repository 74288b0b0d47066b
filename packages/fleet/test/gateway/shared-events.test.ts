/** Event streams of two gateways that share a store. */

import { SandlotClient } from "@sandlot/client";
import { afterEach, describe, expect, it } from "vitest";
import { type SseEvent, sseEvents } from "./support/sse.ts";
import type { Caller } from "./support/stage.ts";
import { openTwoGateways, type TwoGateways } from "./support/two-gateways.ts";

let two: TwoGateways | null = null;
afterEach(async () => {
  await two?.done();
  two = null;
});

/** A stream that is read in the background. */
async function stream(caller: Caller, path = "/v1/events", headers: Record<string, string> = {}) {
  const stop = new AbortController();
  const response = await caller.call("GET", path, { signal: stop.signal, headers });
  expect(response.status).toBe(200);
  const events: SseEvent[] = [];
  const reading = (async () => {
    for await (const event of sseEvents(response)) events.push(event);
  })().catch(() => undefined);
  return {
    events,
    async until(what: string, isIt: (event: SseEvent) => boolean, from = 0): Promise<SseEvent> {
      for (let turn = 0; turn < 500; turn += 1) {
        const found = events.slice(from).find(isIt);
        if (found !== undefined) return found;
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      throw new Error(`no ${what} in ${JSON.stringify(events.map(({ event }) => event))}`);
    },
    async close() {
      stop.abort();
      await reading;
    },
  };
}

const isAcquired = (thread: string) => (item: SseEvent) =>
  item.event === "lease-acquired" && item.data.thread === thread;
const exec = (caller: Caller, thread: string) =>
  caller.ask(200, "POST", `/v1/threads/${thread}/exec`, { json: { command: "true" } });

describe("events of two gateways", () => {
  it("a stream at one has the events of the other, with their instance and engine", async () => {
    two = await openTwoGateways();
    const { a, b } = two;
    const seen = await stream(a.operator);
    await exec(a.operator, "at-a");
    await exec(b.operator, "at-b");
    const own = await seen.until("event of A", isAcquired("at-a"));
    const other = await seen.until("event of B", isAcquired("at-b"));
    expect(own.data.instance).toBe(a.fleet.instanceId);
    expect(other.data.instance).toBe(b.fleet.instanceId);
    expect(String(other.data.engine)).toMatch(/^memory-/);
    expect(seen.events.map(({ event }) => event)).not.toContain("partial");
    expect(seen.events.map(({ event }) => event)).not.toContain("gap");
    await seen.close();
  });

  it("a user sees the own events only, from both", async () => {
    two = await openTwoGateways();
    const { a, b } = two;
    const key = await two.user("alice");
    const seen = await stream(a.operator.as(key));
    await b.operator.with({ "x-sandlot-user": "bob" }).ask(200, "POST", "/v1/threads/of-bob/exec", {
      json: { command: "true" },
    });
    await exec(b.operator.as(key), "of-alice");
    await seen.until("event of alice", isAcquired("of-alice"));
    expect(seen.events.filter(({ data }) => data.user !== "alice")).toEqual([]);
    await seen.close();
  });

  it("own=true leaves the other gateway out", async () => {
    two = await openTwoGateways();
    const { a, b } = two;
    const seen = await stream(a.operator, "/v1/events?own=true");
    await exec(b.operator, "at-b");
    await exec(a.operator, "at-a");
    await seen.until("event of A", isAcquired("at-a"));
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(new Set(seen.events.map(({ data }) => data.instance))).toEqual(new Set([a.fleet.instanceId]));
    await seen.close();
  });

  it("a reader that comes back to the same gateway misses nothing of either", async () => {
    two = await openTwoGateways();
    const { a, b } = two;
    const first = await stream(a.operator);
    await exec(b.operator, "one");
    const { id } = await first.until("event of B", isAcquired("one"));
    await first.close();
    await exec(b.operator, "two");
    await exec(a.operator, "three");
    const second = await stream(a.operator, "/v1/events", { "last-event-id": id ?? "" });
    await second.until("event of B", isAcquired("two"));
    await second.until("event of A", isAcquired("three"));
    expect(second.events.map(({ event }) => event)).not.toContain("gap");
    await second.close();
  });

  it("a reader that resumes at the other gateway learns that it missed something", async () => {
    two = await openTwoGateways();
    const { a, b } = two;
    const first = await stream(a.operator);
    await exec(a.operator, "one");
    const { id } = await first.until("event", isAcquired("one"));
    await first.close();
    const second = await stream(b.operator, "/v1/events", { "last-event-id": id ?? "" });
    await second.until("gap", ({ event }) => event === "gap");
    await exec(a.operator, "two");
    await second.until("event of A", isAcquired("two"));
    await second.close();
  });

  it("gateways without an address are named at the beginning of a stream", async () => {
    two = await openTwoGateways({ advertised: false });
    const { a, b } = two;
    const seen = await stream(a.operator);
    await exec(a.operator, "at-a");
    await seen.until("event of A", isAcquired("at-a"));
    expect(seen.events[0]).toMatchObject({ event: "partial", data: { instances: [b.fleet.instanceId] } });
    await seen.close();
  });

  it("the client tells its caller of instances whose events do not come", async () => {
    two = await openTwoGateways({ advertised: false });
    const { a, b } = two;
    const client = new SandlotClient({ url: a.gateway.url, apiKey: a.operator.key });
    const stop = new AbortController();
    const partial: (readonly string[])[] = [];
    const events = client.events({ signal: stop.signal, onPartial: (instances) => partial.push(instances) });
    const first = events.next();
    for (let turn = 0; partial.length === 0 && turn < 200; turn += 1)
      await new Promise((resolve) => setTimeout(resolve, 20));
    expect(partial).toEqual([[b.fleet.instanceId]]);
    await exec(a.operator, "at-a");
    expect((await first).value).toMatchObject({ instance: a.fleet.instanceId });
    stop.abort();
    await events.return(undefined).catch(() => undefined);
    // Without a listener it is a gap: a reader that knows no notice must not believe that it has everything.
    const again = new AbortController();
    const plain = client.events({ signal: again.signal });
    expect((await plain.next()).value).toBe(null);
    again.abort();
    await plain.return(undefined).catch(() => undefined);
  });

  it("a gateway that dies is named, and is no longer named when its session is over", async () => {
    two = await openTwoGateways();
    const { a, b } = two;
    const seen = await stream(a.operator);
    await exec(b.operator, "at-b");
    await seen.until("event of B", isAcquired("at-b"));
    const from = seen.events.length;
    await b.kill();
    const isPartial = ({ event }: SseEvent) => event === "partial";
    expect((await seen.until("notice", isPartial, from)).data).toEqual({ instances: [b.fleet.instanceId] });
    await seen.until("end", (item) => isPartial(item) && (item.data.instances as string[]).length === 0, from);
    await seen.until("gap", ({ event }) => event === "gap", from);
    await exec(a.operator, "at-a");
    await seen.until("event of A", isAcquired("at-a"));
    await seen.close();
  });

  it("another gateway's credential opens its events and nothing else", async () => {
    two = await openTwoGateways();
    const { a, entries } = two;
    const { PeerCredential } = await import("../../src/gateway/events/peer-credential.ts");
    const credential = await PeerCredential.open(entries);
    const peer = a.operator.as(credential.for(a.fleet.instanceId, "events"));
    const seen = await stream(peer, "/v1/events?own=true");
    await seen.close();
    const others = ["/v1/sandboxes", "/v1/keys", "/v1/threads", "/metrics", "/v1/dashboard/overview"];
    for (const path of others) await peer.ask(401, "GET", path);
    await a.operator.as(credential.for("i-other", "events")).ask(401, "GET", "/v1/events");
    const looking = a.operator.as(credential.for(a.fleet.instanceId, "overview"));
    await looking.ask(200, "GET", "/v1/dashboard/overview");
    for (const path of ["/v1/events?own=true", "/v1/dashboard/fleet", "/v1/dashboard/configuration"])
      await looking.ask(401, "GET", path);
    const stored = (await entries.list("")).map(({ body }) => body).join();
    expect(stored).not.toContain(credential.for(a.fleet.instanceId, "events").slice(4));
  });
});
