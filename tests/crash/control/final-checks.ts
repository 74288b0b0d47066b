/**
 * The end of a run: faults stop, all processes continue, and the following must then hold, as in every healthy fleet.
 *
 *   heal     every call of a survivor settles
 *   settle   engine and store agree, nothing is pending, no session belongs to a dead process
 *   verify   every thread can be acquired and has what was written in it
 *   leave    all but one close and hand over; the last one closes with `destroy`, and nothing is left
 */

import { isHeld } from "../../../packages/fleet/src/store/record.ts";
import type { Store } from "../../../packages/fleet/src/store/store.ts";
import type { EngineConnection } from "../backend-client/engine-connection.ts";
import type { Database } from "../database/database.ts";
import { ownerOf, THREADS } from "../settings.ts";
import type { Command } from "../wire.ts";
import type { Child } from "./child-process.ts";
import { describeTime, withinOwnTime } from "./own-time.ts";
import type { Signals } from "./signals.ts";
import type { Tally } from "./tally.ts";
import type { Workers } from "./workers.ts";

export interface FinalParts {
  readonly workers: Workers;
  readonly engine: EngineConnection;
  readonly store: Store;
  readonly tally: Tally;
  readonly signals: Signals;
  readonly database: Database;
  /** The processes beside the children that have to run for anything to go on. */
  readonly pids: () => readonly number[];
}

/** Of own time. Longer than a deadline with its slack, and than the grace period of orphans with the time to remove them. */
const FINISH_MAX_MS = 12_000;
const SETTLE_MAX_MS = 20_000;
const CLOSE_MAX_MS = 15_000;
/** In the owner of a workspace whose caller named no thread. */
const ANONYMOUS = "/~";

export async function finalChecks(parts: FinalParts): Promise<void> {
  const { workers, engine, tally } = parts;
  const passed = () => tally.violations.length === 0;
  await workers.dismissReserve();
  await engine.ask("heal", []);
  await Promise.all(workers.active().map((child) => finish(parts, child, { command: "finish" })));
  if (passed()) await settle(parts);
  const [last, ...others] = workers.active();
  if (last === undefined) return tally.violated("no child has survived");
  if (passed()) await finish(parts, last, { command: "verify" });
  if (passed()) for (const child of others) await close(parts, child, false);
  if (passed()) await settle(parts);
  if (passed()) await checkWrites(parts, "while a fleet is open");
  if (passed()) await close(parts, last, true);
  if (passed()) await checkNothingLeft(parts);
  if (passed()) await checkWrites(parts, "after everything has ended");
  for (const problem of await parts.database.problems()) tally.violated(problem);
}

/** A child finishes when everything it awaits has settled: a call that is open then, or later, never will. */
async function finish(parts: FinalParts, child: Child, command: Command): Promise<void> {
  const { signals, tally } = parts;
  let isFinished: true | null = null;
  const stop = signals.listen((signal) => {
    const isIt = signal.what === "finished" || signal.what === "gone";
    if (isIt && signal.child === child) isFinished = true;
  });
  child.send(command);
  const outcome = await withinOwnTime(
    FINISH_MAX_MS,
    () => [child.pid, ...parts.pids()],
    () => isFinished,
  );
  stop();
  if (outcome.value === null) tally.violated(`${child.name} has not finished after ${describeTime(outcome)}`);
  for (const { kind, owner, startedAt } of child.calls.values()) {
    const waitedMs = Math.round(performance.now() - startedAt - child.pausedSince(startedAt));
    tally.violated(`${child.name}: ${kind} of ${owner} has not settled after ${waitedMs} ms`);
  }
}

async function close({ tally, pids }: FinalParts, child: Child, destroy: boolean): Promise<void> {
  child.send({ command: "close", destroy });
  const isGone = () => (child.isGone ? true : null);
  const outcome = await withinOwnTime(CLOSE_MAX_MS, () => [child.pid, ...pids()], isGone);
  if (outcome.value === null) tally.violated(`${child.name} has not closed after ${describeTime(outcome)}`);
}

/** Waits until the store and the engine agree at one moment. Idle timeouts and the pool go on meanwhile. */
async function settle(parts: FinalParts): Promise<void> {
  let problems: readonly string[] = [];
  const pids = () => [...parts.workers.active().map(({ pid }) => pid), ...parts.pids()];
  const outcome = await withinOwnTime(SETTLE_MAX_MS, pids, async () => {
    problems = await disagreements(parts);
    return problems.length === 0 ? true : null;
  });
  if (outcome.value !== null) return;
  for (const problem of problems) parts.tally.violated(`after ${describeTime(outcome)} of peace: ${problem}`);
}

async function disagreements({ workers, engine, store }: FinalParts): Promise<readonly string[]> {
  const before = await store.list();
  const dump = await engine.ask("dump", []);
  const records = await store.list();
  const revisions = (list: typeof records) =>
    JSON.stringify(list.map(({ sandboxId, revision }) => [sandboxId, revision]));
  if (revisions(before) !== revisions(records)) return ["the store does not come to rest"];
  const living = new Set<string>(workers.active().map(({ name }) => name));
  const sessions = await store.sessions();
  const known = new Map(records.map((record) => [record.sandboxId as string, record]));
  const objectOf = new Set(dump.objects.filter(({ alive }) => alive).map(({ ref }) => ref));
  const places = new Set<string>(records.map(({ place }) => place));
  return [
    ...sessions
      .filter(({ instance }) => !living.has(instance))
      .map(({ instance }) => `the session of ${instance} is left, which is dead`),
    ...records
      .filter(({ state }) => state !== "ready")
      .map(({ sandboxId, state, actor }) => `record ${sandboxId} is ${state} by ${actor}`),
    ...records
      .filter(isHeld)
      .map(({ sandboxId, holders, leases }) => `record ${sandboxId} is held by ${JSON.stringify({ holders, leases })}`),
    ...records
      .filter(({ ref }) => ref === null || !objectOf.has(ref))
      .map(({ sandboxId, ref }) => `record ${sandboxId} has no sandbox (${ref})`),
    ...dump.objects
      .filter(({ sandboxId, ref }) => known.get(sandboxId)?.ref !== ref)
      .map(({ sandboxId, ref }) => `${ref} of ${sandboxId} is known to no record`),
    ...dump.objects
      .filter(({ attachments }) => attachments > 0)
      .map(({ ref, attachments }) => `${ref} has ${attachments} connections, although nobody uses it`),
    ...dump.slots.filter((slot) => !places.has(slot)).map((slot) => `${slot} has lost its sandbox`),
    ...dump.markers
      .filter((sandboxId) => !known.has(sandboxId))
      .map((sandboxId) => `the markers of ${sandboxId} have lost their sandbox`),
  ];
}

async function checkNothingLeft({ engine, store, tally }: FinalParts): Promise<void> {
  const dump = await engine.ask("dump", []);
  const owners = new Set(THREADS.map(ownerOf));
  const lostRemovals = new Set(dump.lostRemovals);
  for (const { ref } of dump.objects) tally.violated(`${ref} is left`);
  for (const slot of dump.slots) tally.violated(`${slot} is left`);
  for (const sandboxId of dump.markers) tally.violated(`markers of ${sandboxId} are left`);
  for (const { owner } of dump.workspaces) {
    if (owners.has(owner)) continue;
    // A record that was stopping is lost with its epoch. When its sandbox was gone by then, nothing shows its workspace.
    if (lostRemovals.has(owner) && owner.includes(ANONYMOUS)) tally.leftByLostEpochs.push(owner);
    else tally.violated(`the workspace of ${owner} is left`);
  }
  for (const { sandboxId, state } of await store.list()) tally.violated(`record ${sandboxId} is left as ${state}`);
  for (const { instance } of await store.sessions()) tally.violated(`the session of ${instance} is left`);
}

/** Every acknowledged write, of every thread that was not deleted since. */
async function checkWrites({ engine, tally }: FinalParts, when: string): Promise<void> {
  const dump = await engine.ask("dump", []);
  const purged = new Set(dump.purgedTokens);
  const present = new Set(dump.workspaces.flatMap(({ tokens }) => tokens));
  for (const [owner, tokens] of tally.acknowledged) {
    if (owner.endsWith("/~")) continue;
    const lost = [...tokens].filter((token) => !present.has(token) && !purged.has(token));
    if (lost.length > 0)
      tally.violated(`${when}: ${owner} has lost ${lost.length} acknowledged writes, such as ${lost[0]}`);
  }
}
