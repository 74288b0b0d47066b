/**
 * A child: one Sandlot process on the shared store and the shared engine, which may be killed or stopped at any moment.
 *
 *   loaded ──go──▶ open ──▶ (workload) ──finish──▶ finished ──close──▶ closed
 *
 * Loading takes most of the time of a start, so main keeps loaded children in reserve. When main's end of stdin closes,
 * or the engine goes away, a child ends: it never outlives the run.
 */

import { flushCompileCache } from "node:module";
import type { InstanceId } from "@sandlot/contract";
import { assembleFleet } from "../../../packages/fleet/src/assemble-fleet.ts";
import type { Fleet } from "../../../packages/fleet/src/fleet.ts";
import type { Store } from "../../../packages/fleet/src/store/store.ts";
import { systemWorld } from "../../../packages/fleet/src/world/system-world.ts";
import { Random } from "../../simulation/schedule/random.ts";
import { CrashBackend } from "../backend-client/crash-backend.ts";
import { patiently } from "../database/patiently.ts";
import { openStore, parseAddress } from "../database/store-address.ts";
import { parsePlant } from "../plants.ts";
import { settingsFor } from "../settings.ts";
import { type Command, readLines } from "../wire.ts";
import { Report } from "./report.ts";
import { timedStore } from "./timed-store.ts";
import { misbehave } from "./violations.ts";
import { Workload } from "./workload.ts";

const {
  CRASH_SOCKET = "",
  CRASH_STORE = "",
  CRASH_SEED = "1",
  CRASH_NAME = "",
  CRASH_PLANT,
  CRASH_LOG = "",
  CRASH_HOME = "",
  CRASH_STEP_MS,
  CRASH_LOSES_COMMITS,
} = process.env;
const WORKERS = 3;

const report = new Report(CRASH_LOG, CRASH_LOSES_COMMITS === "yes");
let fleet: Fleet | null = null;
let workload: Workload | null = null;
let isClosing = false;

async function go(): Promise<void> {
  const world = systemWorld();
  const settings = settingsFor(CRASH_HOME, parseAddress(CRASH_STORE));
  const random = new Random(Number(CRASH_SEED), 3);
  const backend = await CrashBackend.open(CRASH_SOCKET, CRASH_NAME, () => process.exit(isClosing ? 0 : 3));
  const instanceId = CRASH_NAME as InstanceId;
  fleet = await patiently(
    async () => {
      const store = timed(await openStore(settings.store, world));
      return assembleFleet({ settings, world, store, backend, instanceId }).catch(async (error: unknown) => {
        await store.close();
        throw error;
      });
    },
    (text) => report.log(text),
  );
  fleet.events.on(() => backend.engine.tell("doubted", []), "instance-doubted");
  fleet.events.on((event) => report.log(JSON.stringify(event)));
  fleet.events.on((event) => {
    if (event.type === "close-failed" && isClosing) report.violation(`closing failed: ${event.what}: ${event.problem}`);
  }, "close-failed");
  workload = new Workload({ fleet, backend, random, report, name: CRASH_NAME });
  report.note({ note: "open" });
  workload.start(WORKERS);
  void misbehave(parsePlant(CRASH_PLANT), { fleet, backend, settings, report });
}

function timed(store: Store): Store {
  return CRASH_STEP_MS === undefined ? store : timedStore(store, Number(CRASH_STEP_MS), report);
}

async function close(destroy: boolean): Promise<void> {
  isClosing = true;
  await fleet?.close({ destroy });
  report.note({ note: "closed" });
  process.exit(0);
}

let going: Promise<void> = Promise.resolve();

async function obey(command: Command): Promise<void> {
  if (command.command === "go") going = go();
  // Main may end a child that has hardly begun.
  await going;
  if (command.command === "nudge") await workload?.nudge();
  else if (command.command === "verify") await workload?.verify();
  else if (command.command === "finish") await workload?.finish();
  else if (command.command === "close") await close(command.destroy);
  if (command.command === "finish" || command.command === "verify") report.note({ note: "finished" });
}

function fail(error: unknown): never {
  report.violation(`a child failed: ${error instanceof Error ? error.stack : String(error)}`);
  process.exit(4);
}

process.on("uncaughtException", fail);
process.on("unhandledRejection", fail);
process.stdin.on("end", () => process.exit(isClosing ? 0 : 5));
readLines<Command>(process.stdin, (command) => void obey(command).catch(fail));
// A killed process writes no cache, and the next ones would have to compile everything again.
flushCompileCache();
report.note({ note: "loaded" });
