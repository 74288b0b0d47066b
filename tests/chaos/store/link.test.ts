/** The proxy does to a connection what it says, and nothing else. */

import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Link } from "./link.ts";

let echo: Server;
let link: Link;
const heard: string[] = [];

beforeEach(async () => {
  heard.length = 0;
  echo = createServer((socket) => {
    socket.on("error", () => {});
    socket.on("data", (chunk) => {
      heard.push(String(chunk));
      socket.write(chunk);
    });
  }).listen(0, "127.0.0.1");
  await once(echo, "listening");
  const { port } = echo.address() as { port: number };
  link = await Link.open({ host: "127.0.0.1", port });
});

afterEach(async () => {
  await link.close();
  echo.close();
});

async function client(): Promise<Socket> {
  const socket = connect(link.port, "127.0.0.1");
  socket.on("error", () => {});
  await once(socket, "connect");
  return socket;
}

/** `once` would reject with the error of a reset. */
function closed(socket: Socket): Promise<void> {
  return new Promise((resolve) => socket.once("close", () => resolve()));
}

async function ask(socket: Socket, text: string): Promise<string> {
  socket.write(text);
  const [answer] = await once(socket, "data");
  return String(answer);
}

test("an open link passes bytes both ways", async () => {
  expect(await ask(await client(), "hello")).toBe("hello");
});

test("a delayed link takes its time in each direction and keeps the order", async () => {
  const socket = await client();
  await ask(socket, "warm");
  link.set({ kind: "delayed", ms: 50 });
  const startedAt = performance.now();
  let got = "";
  socket.on("data", (chunk) => {
    got += String(chunk);
  });
  for (const part of ["a", "b", "c"]) {
    socket.write(part);
    await sleep(5);
  }
  link.set({ kind: "open" });
  while (got.length < 3) await sleep(5);
  expect(got).toBe("abc");
  expect(performance.now() - startedAt).toBeGreaterThan(45);
});

test("a cut link resets its connections and refuses new ones until it heals", async () => {
  const socket = await client();
  await ask(socket, "before");
  link.set({ kind: "cut" });
  await closed(socket);
  const refused = connect(link.port, "127.0.0.1");
  refused.on("error", () => {});
  await closed(refused);
  link.heal();
  expect(await ask(await client(), "after")).toBe("after");
});

test("a half-open connection carries nothing, not even after it heals; a new one does", async () => {
  const socket = await client();
  await ask(socket, "before");
  link.set({ kind: "half-open", direction: "both" });
  socket.write("swallowed");
  await sleep(30);
  link.heal();
  socket.write("forgotten");
  await sleep(30);
  expect(heard).toEqual(["before"]);
  expect(socket.destroyed).toBe(false);
  expect(await ask(await client(), "new")).toBe("new");
});

test("where only answers are swallowed, requests still take effect", async () => {
  const socket = await client();
  await ask(socket, "before");
  link.set({ kind: "half-open", direction: "answers" });
  socket.write("done, and not acknowledged");
  await sleep(30);
  expect(heard).toEqual(["before", "done, and not acknowledged"]);
  expect(socket.bytesRead).toBe("before".length);
});

test("bytes of a stalled link arrive when it heals, also those of a client that has gone", async () => {
  const socket = await client();
  await ask(socket, "before");
  link.set({ kind: "stalled", direction: "both" });
  socket.end("late");
  await sleep(30);
  expect(heard).toEqual(["before"]);
  link.heal();
  await sleep(30);
  expect(heard).toEqual(["before", "late"]);
});

test("the next answer is cut in the middle", async () => {
  const socket = await client();
  await ask(socket, "before");
  const happened = link.resetNextAnswer(1_000);
  let got = "";
  socket.on("data", (chunk) => {
    got += String(chunk);
  });
  socket.write("12345678");
  expect(await happened).toBe(true);
  await closed(socket);
  expect(got).toBe("1234");
  expect(await link.resetNextAnswer(10)).toBe(false);
});

test("a link that moves resets its connections and leads to the other server", async () => {
  const socket = await client();
  await ask(socket, "before");
  const other = createServer((there) => there.end("other")).listen(0, "127.0.0.1");
  await once(other, "listening");
  link.moveTo({ host: "127.0.0.1", port: (other.address() as { port: number }).port });
  await closed(socket);
  const [answer] = await once(await client(), "data");
  expect(String(answer)).toBe("other");
  other.close();
});
