/** Large content on a connection for which Node takes no buffers: no handle, so the ordinary way of reading. */

import { once } from "node:events";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { duplexPair } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { SandlotError } from "@sandlot/contract";
import { expect, onTestFinished, test } from "vitest";
import { takeUpload } from "../src/wire/upload.ts";
import { temporaryDirectory } from "./start-daemon.ts";

const PIECE = Buffer.alloc(64 * 1024, "x");

function framed(piece: Uint8Array): Buffer {
  const header = Buffer.alloc(4);
  header.writeUInt32BE(piece.length);
  return Buffer.concat([header, piece]);
}

test("a refusal reaches a sender that has not read it yet and sends on", async () => {
  const path = join(temporaryDirectory(), "s");
  const refusal = new SandlotError("file_not_found", { path: "/there" });
  const server = createServer((socket) => {
    void takeUpload({ socket, head: Buffer.alloc(0) }, () => Promise.reject(refusal));
  }).listen(path);
  onTestFinished(() => void server.close());
  await once(server, "listening");
  const sender = connect(path).pause();
  await sleep(100);
  for (let count = 0; count < 20; count++) {
    sender.write(framed(PIECE));
    await sleep(2);
  }
  const answered = await sender.toArray();
  expect(Buffer.concat(answered).toString()).toContain("file_not_found");
});

test("content arrives whole, and no more of it is read than is written", async () => {
  const [here, there] = duplexPair();
  const answered: Buffer[] = [];
  here.on("data", (bytes: Buffer) => answered.push(bytes));
  let written = 0;
  let mayWrite = () => {};
  const held = new Promise<void>((resolve) => (mayWrite = resolve));
  const done = takeUpload({ socket: there, head: Buffer.alloc(0) }, (content) =>
    content(async (pieces) => {
      await held;
      for (const piece of pieces) written += piece.length;
    }),
  );
  let sent = 0;
  const sending = (async () => {
    for (; sent < 200; sent++)
      if (!here.write(framed(PIECE))) await new Promise<void>((resolve) => here.once("drain", resolve));
    here.write(framed(new Uint8Array()));
  })();
  await sleep(200);
  // Nothing is written yet: the sender has to wait.
  expect(sent).toBeLessThan(20);
  mayWrite();
  await Promise.all([sending, done]);
  expect(written).toBe(200 * PIECE.length);
  expect(Buffer.concat(answered).toString()).toMatch(/^HTTP\/1\.1 101 [\s\S]*\r\n\r\n\{\}$/);
});
