/** Running a gateway: draining, restarting on the same home, resumed events, slow readers, and the log. */

import { connect } from "node:net";
import pino from "pino";
import { describe, expect, test } from "vitest";
import { readOperatorKey } from "../../src/gateway/keys/operator-key.ts";
import { startGateway } from "../../src/gateway/start-gateway.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { allEvents, outputOf, sseEvents } from "./support/sse.ts";
import { Caller, openStage, type Stage } from "./support/stage.ts";

interface Execs {
  readonly execs: readonly { readonly stdoutBytes: number }[];
}

describe("a gateway that is stopped", () => {
  test("lets requests finish and ends streams with a marker; the next one goes on from there", async () => {
    const stage = await openStage();
    try {
      const alice = await stage.user("alice");
      const response = await alice.call("POST", "/v1/threads/t/exec", {
        json: { command: "echo one; cat", execId: "long", keepStdinOpen: true },
        headers: { accept: "text/event-stream" },
      });
      const events = allEvents(response);
      const slow = alice.ask(200, "POST", "/v1/threads/t/exec", { json: { command: "sleep 0.5; echo done" } });
      const printed = async () =>
        (await alice.ask<Execs>(200, "GET", "/v1/threads/t/execs")).execs.map(({ stdoutBytes }) => stdoutBytes);
      await expect.poll(printed).toEqual([4, 0]);
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
        await again.ask(204, "POST", "/v1/threads/t/execs/long/stdin", { json: { data: "two\n", end: true } });
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
    const running = async () => (await alice.ask<Execs>(200, "GET", "/v1/threads/t/execs")).execs.length;
    await expect.poll(running).toBe(1);
    await stage.done();
    // A wait for it would have exceeded the test's time.
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
        // An automatic checkpoint of the first thread may follow its last lease.
        if (!event.startsWith("checkpoint-")) threads.add(data.thread);
        if (event === "sandbox-parked" && data.thread === "two") break;
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
  const FLOOD_BYTES = 9_000_000;

  /** Requests more than the kernel buffers, and does not read it. */
  async function flooded(stage: Stage) {
    const alice = await stage.user("alice");
    const { port, hostname, host } = new URL(stage.gateway.url);
    const socket = connect(Number(port), hostname).pause();
    const body = JSON.stringify({ command: `head -c ${FLOOD_BYTES} /dev/zero | tr '\\0' x`, execId: "flood" });
    socket.write(
      `POST /v1/threads/slow/exec HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${alice.key}\r\n` +
        "Accept: text/event-stream\r\nConnection: close\r\n" +
        `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
    const printed = async () =>
      (await alice.ask<Execs>(200, "GET", "/v1/threads/slow/execs")).execs.map(({ stdoutBytes }) => stdoutBytes);
    await expect.poll(printed).toEqual([FLOOD_BYTES]);
    return { alice, socket };
  }

  test("slows no other client, and gets the rest when it reads", async () => {
    // As long as this test: no connection is cut off in it.
    const stage = await openStage({ settings: { bodyStallMs: 120_000 } });
    try {
      const { alice, socket } = await flooded(stage);
      const openStreams = async () => {
        const metrics = await (await stage.operator.call("GET", "/metrics")).text();
        return /^sandlot_open_streams (\d+)$/m.exec(metrics)?.[1];
      };
      expect(await openStreams()).toBe("1");
      for (let count = 0; count < 20; count += 1)
        await alice.ask(200, "POST", "/v1/threads/quick/exec", { json: { command: "echo quick" } });
      // All of them got responses while it still stalled, with nothing read.
      expect([await openStreams(), socket.bytesRead]).toEqual(["1", 0]);
      let received = "";
      for await (const piece of socket.setEncoding("latin1")) received += piece;
      expect(received.slice(-2_000)).toMatch(/event: exit\ndata: .*"exitCode":0/);
      await expect.poll(openStreams).toBe("0");
    } finally {
      await stage.done();
    }
  }, 60_000);

  test("is cut off", async () => {
    const stage = await openStage({ settings: { bodyStallMs: 100 } });
    try {
      const { socket } = await flooded(stage);
      const state = async () => (await stage.fleet.list()).find(({ thread }) => thread === "slow")?.state;
      await expect.poll(state).toBe("parked");
      let received = "";
      const cut = new Promise<void>((resolve) => socket.once("close", () => resolve()));
      socket.on("error", () => undefined).on("data", (piece) => (received += piece));
      socket.resume();
      await cut;
      expect(received).not.toContain("event: exit");
    } finally {
      await stage.done();
    }
  }, 60_000);
});

describe("a body that does not come", () => {
  test("is given up, also after it was refused; one that comes is not", async () => {
    const stage = await openStage({ settings: { bodyStallMs: 200 } });
    try {
      const alice = await stage.user("alice");
      const { port, hostname, host } = new URL(stage.gateway.url);
      const sent = (key: string) =>
        new Promise<string>((resolve) => {
          const socket = connect(Number(port), hostname);
          let received = "";
          socket.on("data", (piece) => (received += piece));
          socket.on("error", () => undefined).on("close", () => resolve(received));
          socket.write(
            `POST /v1/threads/t/exec HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${key}\r\n` +
              'Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"command":',
          );
        });
      expect(await sent(alice.key)).toBe("");
      expect(await sent("unknown")).toMatch(/^HTTP\/1\.1 401 /);
      // Much longer than a body may take: a completely sent one is not awaited.
      const slow = await alice.ask(200, "POST", "/v1/threads/t/exec", { json: { command: "sleep 0.7; echo done" } });
      expect(slow).toMatchObject({ stdout: "done\n" });
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
    // Logs are filtered by tenant.
    const answers = lines
      .map((line) => JSON.parse(line) as Record<string, unknown>)
      .filter(({ msg }) => msg === "answered");
    expect(answers[0]).toMatchObject({ user: "alice", thread: "t", route: "/v1/threads/:thread/exec", status: 200 });
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
