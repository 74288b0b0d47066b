/** Following the events of peers that misbehave. */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { EventLog, type LogItem } from "../../src/gateway/events/event-log.ts";
import { PeerCredential } from "../../src/gateway/events/peer-credential.ts";
import { PeerEvents } from "../../src/gateway/events/peer-events.ts";
import { isOwnHost } from "../../src/gateway/events/peer-stream.ts";
import { EventBus } from "../../src/observe/event-bus.ts";
import { MemoryEntries } from "../../src/store/memory/memory-entries.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import type { World } from "../../src/world/world.ts";

const HEARTBEAT_MS = 100;
const servers: Server[] = [];
const closes: (() => void)[] = [];
afterEach(async () => {
  for (const close of closes.splice(0)) close();
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});

type Answer = (request: IncomingMessage, response: ServerResponse, turn: number) => void;

interface FollowOptions {
  readonly world?: World;
  readonly heartbeatMs?: number;
  readonly ownAddress?: string | null;
}

/** A peer that answers as it likes, and a log that follows it. */
async function follow(answer: Answer, options: FollowOptions = {}) {
  const { world = systemWorld(), heartbeatMs = HEARTBEAT_MS, ownAddress = "http://127.0.0.1:1" } = options;
  let turns = 0;
  const asked: IncomingMessage[] = [];
  const server = createServer((request, response) => {
    turns += 1;
    asked.push(request);
    answer(request, response, turns);
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const log = new EventLog(new EventBus(world, "i-own" as never), world);
  const credential = await PeerCredential.open(new MemoryEntries());
  const alive = [{ instance: "i-peer" as never, address, lastBeatAt: 0, engines: [], otherEngines: [] }];
  const events = new PeerEvents({ world, log, credential, ownAddress, heartbeatMs, peers: async () => [...alive] });
  const reading = events.read();
  const items: LogItem[] = [];
  const stop = new AbortController();
  void (async () => {
    for await (const item of log.from(log.position(undefined).next, { own: false }, stop.signal)) items.push(item);
  })();
  closes.push(() => {
    stop.abort();
    reading[Symbol.dispose]();
    events.close();
  });
  const until = async (what: string, isIt: () => boolean) => {
    for (let turn = 0; turn < 500 && !isIt(); turn += 1) await new Promise((resolve) => setTimeout(resolve, 20));
    if (!isIt()) throw new Error(`not ${what}: ${JSON.stringify(items)}`);
  };
  return { events, items, asked, until, credential, alive };
}

const head = (response: ServerResponse) => response.writeHead(200, { "content-type": "text/event-stream" });
const event = (number: number) =>
  `id: life-${number}\nevent: store-recovered\ndata: ${JSON.stringify({ type: "store-recovered", at: number, instance: "i-peer" })}\n\n`;
const uncovered = (events: PeerEvents) => events.uncovered(new AbortController().signal);
const kinds = (items: readonly LogItem[]) => items.map(({ kind }) => kind);

describe("a peer whose events are followed", () => {
  it("is asked with the credential for it, and after a break from the last event on", async () => {
    const { items, asked, until, credential } = await follow((_, response, turn) => {
      head(response).write(event(turn));
      if (turn === 1) setTimeout(() => response.destroy(), 50);
    });
    await until("two events", () => items.filter(({ kind }) => kind === "event").length === 2);
    expect(asked[0]?.headers.authorization).toBe(`Bearer ${credential.for("i-peer", "events")}`);
    expect(asked[0]?.url).toBe("/v1/events?own=true");
    expect(asked[0]?.headers["last-event-id"]).toBe(undefined);
    expect(asked[1]?.headers["last-event-id"]).toBe("life-1");
    // The peer has nothing to say about a loss, so there is none.
    expect(kinds(items).lastIndexOf("gap")).toBeLessThan(kinds(items).indexOf("event"));
  });

  it("that sends no answer is named, and readers do not wait for it longer than a second", async () => {
    const { events } = await follow(() => undefined);
    const before = Date.now();
    expect(await uncovered(events)).toEqual(["i-peer"]);
    expect(Date.now() - before).toBeLessThan(10_000);
  });

  it("that refuses is named", async () => {
    const { events } = await follow((_, response) => void response.writeHead(401).end("{}"));
    expect(await uncovered(events)).toEqual(["i-peer"]);
  });

  it("that falls silent without its heartbeats is cut off, named, and asked again", async () => {
    const { events, items, asked, until } = await follow((_, response) => void head(response).write(event(1)));
    await until("an event", () => kinds(items).includes("event"));
    expect(await uncovered(events)).toEqual([]);
    await until("a notice", () => items.some((item) => item.kind === "partial" && item.instances.length === 1));
    await until("asked again", () => asked.length >= 2);
  });

  it("that sends heartbeats stays open", async () => {
    const { items, asked, until } = await follow((_, response) => {
      head(response).write(event(1));
      const beat = setInterval(() => response.write(": alive\n\n"), HEARTBEAT_MS);
      response.once("close", () => clearInterval(beat));
    });
    await until("an event", () => kinds(items).includes("event"));
    await new Promise((resolve) => setTimeout(resolve, 8 * HEARTBEAT_MS));
    expect(asked.length).toBe(1);
  });

  it("that missed something itself, sends too much at once or no events at all is a gap or nothing", async () => {
    const { items, until } = await follow((_, response) => {
      head(response).write(`event: gap\ndata: {}\n\n`);
      response.write(`event: x\ndata: "no event"\n\n`);
      response.write(`event: x\ndata: {"type": 1}\n\n`);
      response.write(
        `event: x\ndata: ${JSON.stringify({ ...JSON.parse("{}"), type: "x", at: 1, instance: "i", pad: "x".repeat(70_000) })}\n\n`,
      );
      response.write(event(2));
    });
    await until("an event", () => kinds(items).includes("event"));
    expect(items.filter(({ kind }) => kind === "event").length).toBe(1);
    expect(kinds(items).filter((kind) => kind === "gap").length).toBeGreaterThanOrEqual(2);
  });

  it.each(["https://gateway.example", null])(
    "at a loopback address is named, and gets no credential from a gateway at %s",
    async (ownAddress) => {
      const { events, asked } = await follow((_, response) => void head(response).write(event(1)), { ownAddress });
      expect(await uncovered(events)).toEqual(["i-peer"]);
      await new Promise((resolve) => setTimeout(resolve, 100));
      expect(asked).toEqual([]);
    },
  );

  it("that is gone while its stream counts as open leaves a gap", async () => {
    const usual = systemWorld();
    const world: World = { ...usual, timer: (ms, run, options) => usual.timer(ms / 50, run, options) };
    const answer: Answer = (_, response) => void head(response).write(event(1));
    const { events, items, until, alive } = await follow(answer, { world, heartbeatMs: 10 * 60_000 });
    await until("an event", () => kinds(items).includes("event"));
    expect(await uncovered(events)).toEqual([]);
    alive.pop();
    await until("a gap", () => kinds(items).lastIndexOf("gap") > kinds(items).indexOf("event"));
  });

  it("that has not answered when following ends keeps no reader waiting", async () => {
    const { events, asked, until } = await follow(() => undefined);
    await until("asked", () => asked.length === 1);
    let isSettled = false;
    const waiting = uncovered(events).then(() => (isSettled = true));
    events.close();
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(isSettled).toBe(true);
    await waiting;
  });

  it("that sends a line without end is cut off", async () => {
    const { items, asked, until } = await follow((_, response) => {
      head(response);
      const flood = setInterval(() => response.write("data: ".padEnd(16_000, "x")), 5);
      response.once("close", () => clearInterval(flood));
    });
    await until("asked again", () => asked.length >= 2);
    expect(kinds(items)).not.toContain("event");
  });
});

describe("an address of the host itself", () => {
  it.each([
    ...["http://127.0.0.1:1", "http://127.1", "http://2130706433", "http://LOCALHOST:8", "http://localhost./x"],
    ...["http://a.localhost", "http://[::1]:2", "http://[::ffff:127.0.0.1]", "http://0", "http://[::]", "no URL"],
  ])("is %s", (address) => expect(isOwnHost(address)).toBe(true));

  it.each(["https://gateway.example", "http://10.0.0.1", "http://[fe80::1]", "https://localhost.example"])(
    "is not %s",
    (address) => expect(isOwnHost(address)).toBe(false),
  );
});
