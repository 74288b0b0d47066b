/** Faults of the store, and the move to another one. */

import { execFile } from "node:child_process";
import { renameSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Fault } from "../fault.ts";
import type { Stage } from "../stage/stage.ts";
import type { StoreServer } from "../stage/stage-store.ts";

const MAIN = fileURLToPath(new URL("../../../packages/fleet/src/cli/main.ts", import.meta.url));
const ENGINES = "packages/fleet/test/engines";
const AWAY_MS = 10_000;
const SUPERVISED_MS = 1_000;
/** Of the writes that a failover loses. */
const REWIND_MS = 2_000;

export const STORE_FAULTS: readonly Fault[] = [
  {
    kind: "gateway cut off from the store",
    how: "sqlite: the file is renamed for 10 s; servers: the connections of one of two gateways stand still for 10 s",
    detection: "the gateway's event `store-lost`",
    test: "packages/fleet/test/store/sqlite-files.test.ts",
    testsOf: { postgres: "tests/chaos/store/faults.ts", redis: "tests/chaos/store/faults.ts" },
    async strike(stage) {
      const at = performance.now();
      if (stage.store.server === null) {
        const path = join(stage.home, "fleet.db");
        renameSync(path, `${path}.away`);
        await sleep(AWAY_MS);
        renameSync(`${path}.away`, path);
      } else {
        stage.store.server.cut();
        await sleep(AWAY_MS);
        stage.store.server.mend();
      }
      return { at, shownBy: ["store-lost"] };
    },
  },
  {
    kind: "store killed",
    how: "SIGKILL to the server, started again after 2 s",
    detection: "a gateway's event `store-lost`",
    test: `${ENGINES}/postgres/lost-writes.test.ts`,
    testsOf: { redis: `${ENGINES}/redis/crashes.test.ts` },
    unfit: ({ server }) => (server === null ? "a file has no process to kill" : null),
    async strike({ store: { server } }) {
      const at = performance.now();
      await server?.kill();
      await sleep(2_000);
      await server?.restart();
      return { at, shownBy: ["store-lost"] };
    },
  },
  {
    kind: "store paused",
    how: "sqlite: another process keeps the write lock for 10 s; servers: SIGSTOP for 10 s",
    detection: "a gateway's event `store-lost`",
    test: "packages/fleet/test/store/sqlite-processes.test.ts",
    testsOf: { postgres: `${ENGINES}/postgres/trouble.test.ts`, redis: `${ENGINES}/redis/crashes.test.ts` },
    async strike({ home, store: { server } }) {
      const at = performance.now();
      if (server !== null) {
        server.pause();
        await sleep(AWAY_MS);
        server.resume();
        return { at, shownBy: ["store-lost"] };
      }
      const db = new DatabaseSync(join(home, "fleet.db"), { timeout: 1_000 });
      for (;;) {
        try {
          db.exec("BEGIN IMMEDIATE");
          break;
        } catch {
          await sleep(5); // A gateway is writing.
        }
      }
      await sleep(AWAY_MS);
      db.exec("ROLLBACK");
      db.close();
      return { at, shownBy: ["store-lost"] };
    },
  },
  {
    kind: "store failed over with lost writes",
    how: "sqlite: a copy that is 2 s older takes the place of the file; servers: killed, and started with data that are 2 s older",
    detection: "a gateway's event `epoch-changed`",
    test: "packages/fleet/test/store/sqlite-files.test.ts",
    testsOf: { postgres: `${ENGINES}/postgres/lost-writes.test.ts`, redis: `${ENGINES}/redis/replicas.test.ts` },
    async strike({ home, store: { server } }) {
      if (server !== null) {
        await server.rewind(REWIND_MS);
        return { at: server.rewoundAt, shownBy: ["epoch-changed"] };
      }
      const path = join(home, "fleet.db");
      const db = new DatabaseSync(path, { timeout: 5_000 });
      db.exec(`VACUUM INTO '${path}.copy'`);
      db.close();
      await sleep(REWIND_MS);
      const at = performance.now();
      renameSync(`${path}.copy`, path);
      // The epoch changes at the next beat at the latest, and recovery takes a lifetime.
      await sleep(6_000);
      return { at, shownBy: ["epoch-changed"] };
    },
  },
  {
    kind: "disk of the store full",
    how: "the data of the server are on a file system of their own that another program fills for 10 s; a server that ends is started again every second",
    detection: "the first call that fails",
    test: `${ENGINES}/postgres/full-disk.test.ts`,
    testsOf: { redis: `${ENGINES}/redis/full-disk.test.ts` },
    unfit: ({ server }) => (server === null ? "its disk is the home's: see disk full" : null),
    prepare: async ({ store }) => store.server?.useSmallDisk(),
    async strike({ store: { server } }) {
      const at = performance.now();
      server?.disk.fill();
      await supervised(server, AWAY_MS);
      server?.disk.free();
      await supervised(server, AWAY_MS);
      return { at };
    },
  },
  {
    kind: "store moved",
    how: "both gateways stop, `sandlot store export` and `import` into a new store of the same type, both start; counted from the first stop",
    detection: "the first call that is refused",
    test: "packages/fleet/test/cli/store-move.test.ts",
    testsOf: { postgres: `${ENGINES}/postgres/store-move.test.ts`, redis: `${ENGINES}/redis/store-move.test.ts` },
    async strike(stage) {
      const at = performance.now();
      await moved(stage);
      return { at };
    },
  },
];

/** As a supervisor does: starts a server that has ended. One without room ends again. */
async function supervised(server: StoreServer | null, ms: number): Promise<void> {
  for (const until = performance.now() + ms; performance.now() < until; await sleep(SUPERVISED_MS))
    if (server?.isRunning === false) await server.restart().catch(() => undefined);
}

async function moved(stage: Stage): Promise<void> {
  const file = join(stage.home, "export.jsonl");
  for (const gateway of [...stage.gateways]) {
    await gateway.end();
    stage.forget(gateway);
  }
  await sandlot(stage, "store", "export", file);
  stage.useStore("moved");
  await sandlot(stage, "store", "import", file);
  await stage.startGateway();
  await stage.startGateway();
}

async function sandlot(stage: Stage, ...args: readonly string[]): Promise<void> {
  const { SANDLOT_URL: _, ...inherited } = process.env;
  await promisify(execFile)(process.execPath, ["--conditions=sandlot-source", MAIN, ...args, "-c", stage.config(0)], {
    env: { ...inherited, SANDLOT_HOME: stage.home },
  });
}
