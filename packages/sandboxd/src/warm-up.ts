/**
 * The first of everything is slow: code is compiled when it is first used. A daemon that waits to be used goes through it
 * shortly after it has announced itself, so that its first caller finds it warm.
 *
 * Invariants
 * - It is nobody's activity and reaches nothing that counts: all of it is asked of a server that nobody else can reach, with
 *   credentials of its own. Its commands are in the same table as everybody's, but not listed, and forgotten at their end.
 * - Whoever comes first goes first. Once somebody has asked, nothing more is rehearsed.
 */

import type { Server } from "node:http";
import { Duplex } from "node:stream";
import { sleep } from "./clock.ts";
import { REHEARSED_EXEC } from "./exec/exec-table.ts";
import type { Secret } from "./wire/credentials.ts";
import { sha256 } from "./wire/sha256.ts";

/** A sandbox that is made because somebody waits for it is used before this is over. */
const BEGIN_AFTER_MS = 25;
/** Between two rounds and after every command, for whoever has come meanwhile. */
const PAUSE_MS = 1;
/** Until what answers a request is compiled. More would still run when the next one comes, and take the processor from him. */
const ROUNDS = 12;
/** Commands are dearer, and less of their time is ours. */
const COMMAND_ROUNDS = 6;
const TOKEN = "-";

/** What the server that is practised with answers to. */
export const REHEARSED: Secret & { readonly sandboxId: string } = {
  sandboxId: TOKEN,
  generation: 0,
  tokenHash: sha256(TOKEN),
};

/** `practised` answers to `REHEARSED`. */
export async function rehearse(practised: Server, isInUse: () => boolean): Promise<void> {
  await sleep(BEGIN_AFTER_MS);
  for (let round = 0; round < ROUNDS; round++) {
    const [generation, next] = [round, round + 1];
    const exec = (command: string | readonly string[], cwd: string) => () =>
      ask(practised, next, "/sandlot/exec", { execId: REHEARSED_EXEC, command, cwd });
    const requests = [
      () => ask(practised, generation, "/sandlot/rebind", { generation: next, token: TOKEN, hold: true }),
      // A command that is refused at its last step, because its directory is missing.
      exec(["/bin/true"], "/-"),
    ];
    const commands = [exec(["/bin/true"], "/"), exec("true", "/")];
    for (const step of requests) if (!isInUse()) await step();
    await sleep(PAUSE_MS);
    for (const step of round < COMMAND_ROUNDS ? commands : []) {
      if (isInUse()) return;
      await step();
      await sleep(PAUSE_MS);
    }
    if (isInUse()) return;
  }
}

/** Resolves when it begins to answer. A connection without a network: one side is the server's, the other is here. */
function ask(server: Server, generation: number, path: string, fields: object): Promise<void> {
  const body = JSON.stringify(fields);
  const head = [
    `POST ${path} HTTP/1.1`,
    "Host: -",
    `x-sandlot-sandbox: ${TOKEN}`,
    `x-sandlot-generation: ${generation}`,
    `x-sandlot-token: ${TOKEN}`,
    `Content-Length: ${body.length}`,
  ];
  return new Promise((resolve) => {
    const connection = new Duplex({
      read() {},
      write(_chunk, _encoding, done) {
        done();
        connection.destroy();
      },
    });
    connection.once("close", resolve);
    server.emit("connection", connection);
    connection.push(`${head.join("\r\n")}\r\n\r\n${body}`);
  });
}
