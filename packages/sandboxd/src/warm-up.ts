/**
 * Warm-up: code is compiled and optimised while it is first used, so the first requests of a daemon are slow. A daemon that
 * waits in a pool sends itself those requests shortly after it has announced itself. Compiled code to start from
 * (`sandboxd.compiled`) is not enough: V8 optimises only what has run. `npm run bench docker` measures a blank with its
 * first command, and holds it to a limit.
 *
 * Invariants
 * - It touches nothing of the sandbox's own: it has a server that no connection reaches, with credentials, tables and FIFOs
 *   of its own, and closes them at its end. Its work is not listed, is no activity and renews nothing.
 * - The first real request ends it: after that it starts nothing more.
 */

import type { Server } from "node:http";
import { Duplex } from "node:stream";
import { sleep } from "./clock.ts";
import { type ExecSettings, ExecTable } from "./exec/exec-table.ts";
import { ActivityMonitor } from "./introspection/activity.ts";
import { SessionTable } from "./sessions/session-table.ts";
import { SupervisorMemory } from "./supervision/memory.ts";
import { TerminalTable } from "./terminals/terminal-table.ts";
import { CredentialCheck } from "./wire/credentials.ts";
import { daemonServer } from "./wire/server.ts";
import { sha256 } from "./wire/sha256.ts";

/** A sandbox that is made for a waiting caller is in use before this is over. */
const BEGIN_AFTER_MS = 25;
/** Between two rounds and after every command, so that a real request is read meanwhile. */
const PAUSE_MS = 1;
/** Until the request path is compiled. More would still run when the first request comes, and would delay it. */
const ROUNDS = 12;
/** Commands cost more, and less of their time is the daemon's. */
const COMMAND_ROUNDS = 6;
const TOKEN = "-";

export async function warmUp(settings: ExecSettings, isInUse: () => boolean): Promise<void> {
  await sleep(BEGIN_AFTER_MS);
  if (isInUse()) return;
  // This table does not know the sandbox's commands, so it must not guess that a process without a trace is one of its own.
  const execs = new ExecTable({ ...settings, ownsPidNamespace: false });
  const sessions = new SessionTable(execs);
  const terminals = new TerminalTable(execs);
  const activity = new ActivityMonitor(execs, terminals);
  const credentials = new CredentialCheck(TOKEN, { generation: 0, tokenHash: sha256(TOKEN) });
  const { http } = daemonServer(credentials, {
    ...{ execs, sessions, terminals, activity },
    ...{ memory: new SupervisorMemory(null), run: TOKEN, canary: null },
  });
  try {
    for (let round = 0; round < ROUNDS && !isInUse(); round++) await sendRound(http, round, isInUse);
  } finally {
    await execs.close();
  }
}

async function sendRound(server: Server, round: number, isInUse: () => boolean): Promise<void> {
  const next = round + 1;
  const exec = (command: string | readonly string[], cwd: string) => () =>
    send(server, next, "/sandlot/exec", { execId: TOKEN, command, cwd });
  const requests = [
    () => send(server, round, "/sandlot/rebind", { generation: next, token: TOKEN, hold: true }),
    // A command that is refused at its last step, because its directory is missing.
    exec(["/bin/true"], "/-"),
  ];
  for (const step of requests) if (!isInUse()) await step();
  await sleep(PAUSE_MS);
  for (const step of round < COMMAND_ROUNDS ? [exec(["/bin/true"], "/"), exec("true", "/")] : []) {
    if (isInUse()) return;
    await step();
    await sleep(PAUSE_MS);
  }
}

/** Resolves when the response begins. A connection without a network: one end is the server's, the other is here. */
function send(server: Server, generation: number, path: string, fields: object): Promise<void> {
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
