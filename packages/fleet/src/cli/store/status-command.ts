/** `sandlot store status`: where the store is, what is in it, who uses it, and how fast it answers. */

import { isoTime } from "@sandlot/contract";
import { isBlank, isParked, type SandboxRecord } from "../../store/record.ts";
import type { Session, Store } from "../../store/store.ts";
import { showSize } from "../../world/units.ts";
import type { World } from "../../world/world.ts";
import { withProgress } from "../progress.ts";
import { printTable } from "../table.ts";
import { printJson, type Terminal } from "../terminal.ts";
import { findStore, type OpenedStore, withStore } from "./opened-store.ts";

/** Tries of each probe; the median is shown. */
const PROBES = 5;

const STATES = ["leased", "parked", "blank", "creating", "stopping"] as const;
type Counts = Readonly<Record<(typeof STATES)[number], number>>;

export async function statusCommand(terminal: Terminal, options: { config?: string; json: boolean }): Promise<void> {
  const found = await findStore(terminal, options.config);
  const status = await withProgress(terminal, "Looking", () => withStore(found, false, statusOf));
  if (options.json) printJson(terminal, status);
  else print(terminal, status);
}

type Status = Awaited<ReturnType<typeof statusOf>>;

async function statusOf({ store, entry, settings, description, world }: OpenedStore) {
  const { now, ...overview } = await store.overview();
  const sessions = await store.sessions();
  const records = await store.list();
  const engines = await enginesOf(store, sessions, records);
  const readMs = await median(world, () => store.overview());
  const writeMs = await median(world, () => store.probe());
  const sizeBytes = (await entry.sizeBytes?.(settings.store)) ?? null;
  const sandboxes = { total: records.length, ...countsOf(records) };
  return {
    type: settings.store.type,
    description,
    promise: store.promise,
    ...overview,
    sandboxes,
    engines,
    sessions: sessions.map((session) => sessionOf(session, now)),
    latencyMs: { read: readMs, write: writeMs },
    sizeBytes,
  };
}

function countsOf(records: readonly SandboxRecord[]): Counts {
  const counts = { leased: 0, parked: 0, blank: 0, creating: 0, stopping: 0 };
  for (const record of records) {
    if (record.state !== "ready") counts[record.state] += 1;
    else if (isBlank(record)) counts.blank += 1;
    else counts[isParked(record) ? "parked" : "leased"] += 1;
  }
  return counts;
}

/** Every engine that a record or a session names. Nothing is ended on one without a session: it is out of reach. */
async function enginesOf(store: Store, sessions: readonly Session[], records: readonly SandboxRecord[]) {
  const names = new Set([...sessions.flatMap(({ engines }) => engines), ...records.map(({ engine }) => engine)]);
  const engines = [...names].sort().map(async (engine) => ({
    engine,
    recovering: (await store.meta(engine)).recovering,
    sessions: sessions.filter((session) => session.engines.includes(engine)).length,
    ...countsOf(records.filter((record) => record.engine === engine)),
  }));
  return Promise.all(engines);
}

/** The beat's age is on the store's clock: it may be wrong by a step of that clock, and nothing is decided by it. */
function sessionOf({ instance, beat, lastBeatAt, identity, engines, address }: Session, now: number) {
  return { instance, beat, beatAgeMs: Math.max(0, now - lastBeatAt), process: identity.pid, engines, address };
}

async function median(world: World, probe: () => Promise<unknown>): Promise<number> {
  const times: number[] = [];
  for (let tries = 0; tries < PROBES; tries += 1) {
    const began = world.monotonicMs();
    await probe();
    times.push(world.monotonicMs() - began);
  }
  const middle = times.sort((one, other) => one - other)[Math.floor(PROBES / 2)] ?? 0;
  return Math.round(middle * 1_000) / 1_000;
}

const PROMISES: Readonly<Record<Status["promise"], string>> = {
  linearizable: "an answered step is never lost",
  "may-rewind": "a failover can lose the last steps; it is noticed, and a new epoch begins",
};

function print(terminal: Terminal, status: Status): void {
  const { description, promise, epoch, recovering, transfer, latencyMs, sizeBytes, sandboxes } = status;
  const marked = transfer === null ? "" : `; closed since ${isoTime(transfer.since)} (${transfer.state})`;
  const facts: readonly (readonly [string, string])[] = [
    ["store", description],
    ["promise", PROMISES[promise]],
    ["epoch", `${epoch}${recovering ? ", recovering" : ""}${marked}`],
    ["latency", `read ${latencyMs.read} ms, write ${latencyMs.write} ms`],
    ["size", sizeBytes === null ? "unknown" : showSize(sizeBytes)],
    ["sandboxes", `${sandboxes.total}`],
  ];
  for (const [name, fact] of facts) terminal.out(`${name.padEnd(10)}  ${fact}\n`);
  if (status.engines.length > 0) {
    const rows = status.engines.map((one) => [
      ...[one.engine || "-", String(one.sessions), ...STATES.map((state) => String(one[state]))],
    ]);
    printTable(terminal, ["ENGINE", "INSTANCES", ...STATES.map((state) => state.toUpperCase())], rows);
  }
  if (status.sessions.length === 0) terminal.out("No instance uses it.\n");
  else printSessions(terminal, status.sessions);
}

function printSessions(terminal: Terminal, sessions: Status["sessions"]): void {
  const rows = sessions.map(({ instance, process, beat, beatAgeMs, address }) => [
    ...[instance, String(process), String(beat), `${(beatAgeMs / 1_000).toFixed(1)}s`, address ?? "-"],
  ]);
  printTable(terminal, ["INSTANCE", "PROCESS", "BEAT", "AGE", "ADDRESS"], rows);
}
