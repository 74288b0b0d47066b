/**
 * Another process at the same file, for the tests that need one. `sqlite-child.ts <command> <path> [argument]` prints
 * one JSON value per line, written synchronously, so that each value was true before the next step.
 */

import { writeSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import type { InstanceId, SandboxId, ThreadId, UserId } from "@sandlot/contract";
import { isSandlotError } from "@sandlot/contract";
import { openSqliteStore, type SqliteStore } from "../../src/store/sqlite/sqlite-store.ts";
import { systemWorld } from "../../src/world/system-world.ts";

const [command = "", path = "", argument = ""] = process.argv.slice(2);
const world = systemWorld();
const instance = `child-${process.pid}` as InstanceId;

function say(value: unknown): void {
  writeSync(1, `${JSON.stringify(value)}\n`);
}

async function join(): Promise<SqliteStore> {
  const store = await openSqliteStore({ path, world });
  const about = { instance, identity: world.identity, engines: [], address: null };
  const request = { ...about, epoch: null, held: [], asOf: 0, generationFloor: 0 };
  const answer = await store.beat({ ...request, beat: 1, register: true });
  if (answer.kind === "ok") await store.endRecovery(answer.epoch, "");
  return store;
}

function reserve(store: SqliteStore, max: number | null) {
  const id = world.randomHex(8);
  const made = {
    sandboxId: id as SandboxId,
    token: "t" as never,
    backend: "memory",
    engine: "",
    blueprint: "default",
    blueprintHash: "h" as never,
  };
  const key = { user: "u" as UserId, thread: id as unknown as ThreadId };
  return store.reserve({ ...made, key, actor: instance, limits: { max, maxPerUser: null, maxPerEngine: null } });
}

const commands: Readonly<Record<string, () => Promise<void>>> = {
  /** Opens, prints the epoch, closes. */
  async open() {
    const store = await openSqliteStore({ path, world });
    say(await store.meta());
    await store.close();
  },
  /** Takes the write lock and stops in the middle of the transaction; continued, it commits. */
  async stall() {
    const db = new DatabaseSync(path, { timeout: 1_000 });
    db.exec("BEGIN IMMEDIATE; UPDATE meta SET generation = generation + 1");
    say("inside");
    process.kill(process.pid, "SIGSTOP");
    db.exec("COMMIT");
    db.close();
    say("done");
  },
  /** Reserves until it is killed, and prints the acknowledged reservations. */
  async write() {
    const store = await join();
    for (;;) {
      const answer = await reserve(store, null);
      if (answer.kind === "reserved") say(answer.record.sandboxId);
    }
  },
  /** Holds and releases the thread `t`, again and again, and prints how often it held it. */
  async take() {
    const store = await join();
    const [user, thread] = ["u" as UserId, "t" as ThreadId];
    let taken = 0;
    for (let seq = 1; seq <= Number(argument); seq += 1) {
      const answer = await store.take({ user, thread, instance, seq, blank: null, orReserve: null });
      if (answer.kind !== "held") continue;
      const { sandboxId, generation, holders } = answer.record;
      if (holders[instance]?.seq === seq) taken += 1;
      await store.unhold({ sandboxId, generation, instance, seq, used: true });
    }
    say({ taken });
    await store.leave(instance);
    await store.close();
  },
  /** Creates and removes under a limit, and prints how often there was room. */
  async hammer() {
    const store = await join();
    let reserved = 0;
    let most = 0;
    for (let n = 0; n < 150; n += 1) {
      const answer = await reserve(store, Number(argument));
      most = Math.max(most, (await store.list()).length);
      if (answer.kind !== "reserved") continue;
      reserved += 1;
      const { sandboxId, generation } = answer.record;
      const stop = { sandboxId, generation, actor: instance, reason: "create-abandoned", purge: false } as const;
      const stopped = await store.stop({ ...stop, mode: { kind: "abandon" } });
      if (stopped.kind === "stopping")
        await store.remove({ sandboxId, revision: stopped.record.revision, actor: instance });
    }
    say({ reserved, most });
    await store.close();
  },
};

try {
  await commands[command]?.();
} catch (error) {
  if (!isSandlotError(error)) throw error;
  say({ code: error.code, message: error.message });
}
