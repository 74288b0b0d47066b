/**
 * The first of everything is slow: code is compiled when it is first used. A daemon that waits to be used goes through it
 * once, right after it has announced itself, so that its first caller finds it warm.
 *
 * Invariants
 * - It is nobody's activity, nobody's exec, and needs no credentials: the request is one that is refused.
 * - Whoever comes first goes first. Once somebody has asked, nothing more is rehearsed.
 */

import type { Server } from "node:http";
import { Duplex } from "node:stream";
import { nextTurn } from "./clock.ts";
import type { ExecTable } from "./exec/exec-table.ts";

const BODY = JSON.stringify({ generation: 0, token: "-" });
const REQUEST = [
  "POST /sandlot/rebind HTTP/1.1",
  "Host: -",
  "x-sandlot-sandbox: -",
  "x-sandlot-generation: 0",
  "x-sandlot-token: -",
  `Content-Length: ${BODY.length}`,
  "Connection: close",
  "",
  BODY,
].join("\r\n");

export async function rehearse(http: Server, execs: ExecTable, isInUse: () => boolean): Promise<void> {
  const steps = [
    () => askItself(http),
    () => execs.rehearse(["/bin/true"]),
    () => execs.rehearse("true"),
    () => execs.rehearse(["/bin/true"]),
  ];
  for (const step of steps) {
    await nextTurn();
    if (isInUse()) return;
    await step();
  }
}

/** A connection without a network: one side is the server's, the other writes the request and drops the answer. */
function askItself(http: Server): Promise<void> {
  return new Promise((resolve) => {
    const connection = new Duplex({
      read() {},
      write(_chunk, _encoding, done) {
        done();
      },
    });
    connection.once("close", resolve);
    connection.once("finish", () => connection.destroy());
    http.emit("connection", connection);
    connection.push(REQUEST);
  });
}
