/** Running a gateway: draining, restarting on the same home, events that go on, slow readers, what the log shows. */

import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import pino from "pino";
import { describe, expect, test } from "vitest";
import { readOperatorKey } from "../../src/gateway/keys/operator-key.ts";
import { startGateway } from "../../src/gateway/start-gateway.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { allEvents, outputOf, sseEvents } from "./support/sse.ts";
import { Caller, openStage } from "./support/stage.ts";

describe("a gateway that is stopped", () => {
  test("lets requests finish and ends streams with a marker; the next one goes on from there", async () => {
    const stage = await openStage();
    try {
      const alice = await stage.user("alice");
      const slow = alice.ask(200, "POST", "/v1/threads/t/exec", { json: { command: "sleep 0.5; echo done" } });
      const response = await alice.call("POST", "/v1/threads/t/exec", {
        json: { command: "echo one; sleep 1.5; echo two", execId: "long" },
        headers: { accept: "text/event-stream" },
      });
      const events = allEvents(response);
      await sleep(200);
      await stage.gateway.close();
      expect(await slow).toMatchObject({ stdout: "done\n" });
      const before = await events;
      expect(before.at(-1)).toMatchObject({
        event: "resume",
        data: { execId: "long", stdoutOffset: 4, stderrOffset: 0 },
      });
      await expect(alice.call("GET", "/healthz")).rejects.toThrow();

      const next = await startGateway({
        fleet: stage.fleet,
        home: stage.home,
        world: systemWorld(),
        settings: { port: 0 },
      });
      try {
        expect(next.madeOperatorKey).toBe(false);
        const again = new Caller(next.url, alice.key);
        const rest = await allEvents(
          await again.call("GET", "/v1/threads/t/execs/long/output?stdoutOffset=4&stderrOffset=0", {
            headers: { accept: "text/event-stream" },
          }),
        );
        expect(outputOf(before, "stdout") + outputOf(rest, "stdout")).toBe("one\ntwo\n");
        expect(rest.at(-1)).toMatchObject({ event: "exit", data: { exitCode: 0 } });
      } finally {
        await next.close();
      }
    } finally {
      await stage.done();
    }
  });

  test("cuts off what does not finish in time", async () => {
    const stage = await openStage({ settings: { drainMs: 300 } });
    const alice = await stage.user("alice");
    const call = alice.call("POST", "/v1/threads/t/exec", { json: { command: "sleep 60" } }).catch(() => null);
    await expect.poll(async () => (await stage.fleet.list()).length).toBe(1);
    await sleep(100);
    const started = Date.now();
    await stage.done();
    expect(Date.now() - started).toBeLessThan(5_000);
    expect(await call).toBeNull();
  });

  test("keeps leases: another gateway of the fleet renews and releases them", async () => {
    const stage = await openStage();
    const other = await startGateway({
      fleet: stage.fleet,
      home: stage.home,
      world: systemWorld(),
      settings: { port: 0 },
    });
    try {
      const alice = await stage.user("alice");
      const there = new Caller(other.url, alice.key);
      const bobThere = new Caller(other.url, (await stage.user("bob")).key);
      const { leaseId } = await alice.ask(201, "POST", "/v1/threads/t/leases");
      await there.ask(200, "PUT", `/v1/leases/${leaseId}`);
      await bobThere.ask(404, "PUT", `/v1/leases/${leaseId}`);
      await bobThere.ask(404, "DELETE", `/v1/leases/${leaseId}`);
      await there.ask(204, "DELETE", `/v1/leases/${leaseId}`);
      await alice.ask(404, "PUT", `/v1/leases/${leaseId}`);
    } finally {
      await other.close();
      await stage.done();
    }
  });
});

describe("events", () => {
  test("go on after a break, in order and without repeating", async () => {
    const stage = await openStage();
    try {
      const alice = await stage.user("alice");
      const stop = new AbortController();
      const response = await stage.operator.call("GET", "/v1/events", { signal: stop.signal });
      await alice.ask(200, "POST", "/v1/threads/one/exec", { json: { command: "true" } });
      let last = "";
      for await (const { event, id, data } of sseEvents(response)) {
        last = id ?? last;
        expect(data.type).toBe(event);
        if (event === "sandbox-parked") break;
      }
      stop.abort();
      await alice.ask(200, "POST", "/v1/threads/two/exec", { json: { command: "true" } });
      const again = new AbortController();
      const resumed = await stage.operator.call("GET", "/v1/events", {
        signal: again.signal,
        headers: { "last-event-id": last },
      });
      const threads = new Set<unknown>();
      for await (const { event, data } of sseEvents(resumed)) {
        expect(event).not.toBe("gap");
        threads.add(data.thread);
        if (event === "sandbox-parked") break;
      }
      again.abort();
      expect([...threads]).toEqual(["two"]);
      const gap = new AbortController();
      const foreign = await stage.operator.call("GET", "/v1/events?after=00000000-7", { signal: gap.signal });
      for await (const { event } of sseEvents(foreign)) {
        expect(event).toBe("gap");
        break;
      }
      gap.abort();
    } finally {
      await stage.done();
    }
  });
});

describe("a client that reads nothing", () => {
  test("is cut off, and slows nobody else", async () => {
    const stage = await openStage({ settings: { bodyStallMs: 500 } });
    try {
      const alice = await stage.user("alice");
      const { port, hostname, host } = new URL(stage.gateway.url);
      const socket = connect(Number(port), hostname);
      socket.pause();
      const body = JSON.stringify({ command: "head -c 9000000 /dev/zero | tr '\\0' x", execId: "flood" });
      socket.write(
        `POST /v1/threads/slow/exec HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${alice.key}\r\nAccept: text/event-stream\r\n` +
          `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      );
      const closed = new Promise<void>((resolve) =>
        socket.once("close", () => resolve()).once("error", () => resolve()),
      );
      const durations: number[] = [];
      for (let count = 0; count < 11; count += 1) {
        const started = performance.now();
        await alice.ask(200, "POST", "/v1/threads/quick/exec", { json: { command: "echo quick" } });
        durations.push(performance.now() - started);
      }
      // The middle one: the flood itself is made in this process, and the first may meet it.
      expect(durations.sort((a, b) => a - b)[5]).toBeLessThan(2_000);
      await expect
        .poll(async () => (await stage.fleet.list()).find(({ thread }) => thread === "slow")?.state, {
          timeout: 10_000,
        })
        .toBe("parked");
      socket.destroy();
      await closed;
    } finally {
      await stage.done();
    }
  });
});

describe("the log", () => {
  test("says what was answered, and no secrets", async () => {
    const lines: string[] = [];
    const logger = pino({ level: "trace" }, { write: (line: string) => void lines.push(line) });
    const stage = await openStage({ more: { logger } });
    const alice = await stage.user("alice");
    await alice.ask(200, "POST", "/v1/threads/t/exec", {
      json: { command: "echo hidden-word", env: { TOKEN: "hidden-too" } },
    });
    await alice.ask(404, "GET", "/v1/threads/t/files/content?path=/mnt/user-data/hidden-path");
    const { url } = await alice.ask<{ url: string }>(201, "POST", "/v1/threads/t/ports/1/links");
    const operator = (await readOperatorKey(stage.home)) ?? "";
    await stage.done();
    const text = lines.join("");
    expect(text).toContain("/v1/threads/:thread/exec");
    expect(text).toContain("file_not_found");
    for (const secret of [
      alice.key,
      operator,
      "hidden-word",
      "hidden-too",
      "hidden-path",
      new URL(url).search.slice(14),
    ])
      expect(text).not.toContain(secret);
  });
});
