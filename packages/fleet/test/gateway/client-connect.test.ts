/** `connect` of a client's lease: a raw connection to a port inside, through a gateway. */

import { once } from "node:events";
import { type AddressInfo, createServer, type Server } from "node:net";
import { text } from "node:stream/consumers";
import { SandlotClient } from "@sandlot/client";
import { afterAll, beforeAll, expect, test } from "vitest";
import { richBackend } from "./support/rich-backend.ts";
import { openStage, type Stage } from "./support/stage.ts";

let stage: Stage;
let client: SandlotClient;
let inner: Server;
let port: number;

beforeAll(async () => {
  stage = await openStage({ enrich: richBackend });
  client = new SandlotClient({ url: stage.gateway.url, apiKey: (await stage.user("alice")).key });
  // Speaks first, as a mail or database server does, and not HTTP.
  inner = createServer({ allowHalfOpen: true }, (socket) => {
    socket.write("hello\n");
    socket.on("error", () => undefined).pipe(socket);
  });
  await new Promise<void>((resolve) => inner.listen(0, "127.0.0.1", resolve));
  port = (inner.address() as AddressInfo).port;
});
afterAll(async () => {
  await stage.done();
  await new Promise((resolve) => inner.close(resolve));
});

test("carries bytes both ways, with either side first, and the end", async () => {
  await using lease = await client.acquire({ thread: "c" });
  const connection = await lease.connect(port);
  const all = text(connection);
  const long = "x".repeat(3_000_000);
  connection.write("GET / HTTP/1.1\r\n\r\n");
  connection.end(long);
  expect(await all).toBe(`hello\nGET / HTTP/1.1\r\n\r\n${long}`);
});

test("ends with the lease, which then connects no more", async () => {
  const lease = await client.acquire({ thread: "c" });
  const connection = await lease.connect(port);
  const closed = once(connection, "close");
  connection.resume();
  await lease.release();
  await closed;
  await expect(lease.connect(port)).rejects.toMatchObject({ code: "lease_released" });
});

test("a port without a server, an aborted wait and a backend without ports are errors of their own", async () => {
  await using lease = await client.acquire({ thread: "c" });
  await expect(lease.connect(9)).rejects.toMatchObject({ code: "sandbox_unreachable" });
  await expect(lease.connect(0)).rejects.toMatchObject({ code: "invalid_request" });
  const reason = new Error("no longer wanted");
  await expect(lease.connect(port, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);

  const plain = await openStage();
  try {
    const other = new SandlotClient({ url: plain.gateway.url, apiKey: (await plain.user("bob")).key });
    await using held = await other.acquire({ thread: "c" });
    await expect(held.connect(3_000)).rejects.toMatchObject({ code: "capability_missing" });
  } finally {
    await plain.done();
  }
});
