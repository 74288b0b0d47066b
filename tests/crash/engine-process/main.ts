/**
 * The engine process: a server on a unix socket that outlives the children and keeps the ledger of what exists.
 *
 * Invariant: it does not outlive main. When main's connection ends, it ends every connected child (a stopped one cannot
 * end itself) and then itself.
 */

import { readFileSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { systemWorld } from "../../../packages/fleet/src/world/system-world.ts";
import { patiently } from "../database/patiently.ts";
import { openStore, parseAddress } from "../database/store-address.ts";
import { parsePlant } from "../plants.ts";
import { timesWith } from "../settings.ts";
import { type ControlCalls, type EngineCalls, encodeError, type Push, type Request, readLines } from "../wire.ts";
import { Engine } from "./engine.ts";
import { Peer } from "./peer.ts";

const { CRASH_SOCKET = "", CRASH_STORE = "", CRASH_SEED = "1", CRASH_PLANT, CRASH_LOG = "" } = process.env;

const address = parseAddress(CRASH_STORE);
const store = await patiently(() => openStore(address, systemWorld()));
let control: Peer | null = null;
/** Processes of the database, which main has started and not ended. */
let guarded: readonly number[] = [];
const toMain = (push: Push) => control?.send(push);
const engine = new Engine({
  store,
  sessionLifetimeMs: timesWith(address).sessionLifetimeMs,
  seed: Number(CRASH_SEED),
  plant: parsePlant(CRASH_PLANT),
  logPath: CRASH_LOG,
  onHeld: (held, name, method) => toMain({ push: "held", held, name, method }),
  onViolation: (what) => toMain({ push: "violation", what }),
});

const orders: { [M in keyof ControlCalls]: (peer: Peer, ...args: Parameters<ControlCalls[M]>) => unknown } = {
  control(peer) {
    control = peer;
    engine.peers.delete(peer);
  },
  trap: (_, trap) => engine.traps.set(trap),
  decide: (_, held, decision) => engine.traps.decide(held, decision),
  guard: (_, pids) => {
    guarded = pids;
  },
  rewinding: (_, isRewinding) => (isRewinding ? engine.checks.window.open() : engine.checks.window.close()),
  paused: (_, name) => engine.paused(name),
  resumed: (_, name) => engine.resumed(name),
  heal: () => engine.heal(),
  dump: () => engine.dump(),
};

async function answer(peer: Peer, { id, method, args }: Request): Promise<void> {
  try {
    const value = Object.hasOwn(orders, method)
      ? await Reflect.apply(orders[method as keyof ControlCalls], orders, [peer, ...args])
      : await engine.perform(peer, method as keyof EngineCalls, args as never);
    peer.send({ id, value });
  } catch (error) {
    peer.send({ id, error: encodeError(error) });
  }
}

function serve(socket: Socket): void {
  const peer = new Peer(socket);
  engine.peers.add(peer);
  socket.on("error", () => {});
  socket.on("close", () => {
    if (peer === control) end();
    engine.peerGone(peer);
  });
  readLines<Request>(socket, (request) => void answer(peer, request));
}

function childrenOf(pid: number): readonly number[] {
  try {
    const text = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8");
    return text.trim().split(/\s+/).filter(Boolean).map(Number);
  } catch {
    return [];
  }
}

function end(): never {
  engine.flush();
  const children = [...engine.peers].filter(({ pid, isOpen }) => isOpen && pid !== 0).map(({ pid }) => pid);
  for (const pid of [...children, ...guarded.flatMap((first) => [first, ...childrenOf(first)])]) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // It has ended by itself meanwhile.
    }
  }
  process.exit(0);
}

// Main also holds our stdin: if it dies before it has connected, the end of stdin is the only sign.
process.stdin.on("end", end).resume();
createServer(serve).listen(CRASH_SOCKET, () => process.stdout.write("ready\n"));
