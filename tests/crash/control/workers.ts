/**
 * The children of a run: those that work, and loaded ones in reserve, because loading is most of a start.
 *
 * Invariants
 * - Every started process is in `all` until its exit was seen, so that ending the run ends them all.
 * - A child that ends without a kill or a request is a violation.
 */

import type { Random } from "../../simulation/schedule/random.ts";
import type { Note } from "../wire.ts";
import { Child } from "./child-process.ts";
import type { Signals } from "./signals.ts";
import type { Tally } from "./tally.ts";

export interface CrewOptions {
  readonly program: string;
  environment(name: string): Readonly<Record<string, string>>;
  readonly directory: string;
  readonly random: Random;
  readonly tally: Tally;
  readonly signals: Signals;
}

const RESERVE = 2;
/** How much later than its deadline a call may settle: the machine is small, and a stopped peer can hold the store. */
const SLACK_MS = 3_000;
/** The same for a step of the store, whose deadline is the client's own. */
const STEP_SLACK_MS = 400;
/** This share of children is spared for a while. */
const PROTECTED_SHARE = 0.25;
const PROTECTED_MS = 6_000;

export class Workers {
  readonly all = new Set<Child>();
  readonly #options: CrewOptions;
  readonly #lastHolder = new Map<string, string>();
  readonly #killed = new Set<Child>();
  #count = 0;

  constructor(options: CrewOptions) {
    this.#options = options;
  }

  /** The living ones that were sent to work. */
  active(): readonly Child[] {
    return [...this.all].filter((child) => child.wentAt !== null && !child.isGone);
  }

  lastHolderOf = (sandboxId: string): string | undefined => this.#lastHolder.get(sandboxId);

  /** Sends one more to work, and loads another for the reserve. */
  launch(): void {
    while (this.#reserve().length < RESERVE) this.#load();
    const child = this.#reserve().find(({ isLoaded }) => isLoaded) ?? this.#reserve()[0];
    if (child === undefined) throw new Error("there is no child in reserve");
    if (this.#options.random.chance(PROTECTED_SHARE)) child.protectedUntil = performance.now() + PROTECTED_MS;
    child.send({ command: "go" });
    this.#load();
  }

  async kill(child: Child): Promise<void> {
    this.#killed.add(child);
    await child.kill();
  }

  /** Children in reserve have done nothing, so ending them proves nothing. */
  async dismissReserve(): Promise<void> {
    await Promise.all(this.#reserve().map((child) => this.kill(child)));
  }

  killAllNow(): void {
    for (const child of this.all) child.killNow();
  }

  #reserve(): readonly Child[] {
    return [...this.all].filter((child) => child.wentAt === null && !child.isGone && !this.#killed.has(child));
  }

  #load(): void {
    const { directory, program, random } = this.#options;
    this.#count += 1;
    const name = `child-${this.#count}`;
    const logPath = `${directory}/${name}.log`;
    const own = { CRASH_NAME: name, CRASH_LOG: logPath, CRASH_SEED: String(random.bits()) };
    const child = new Child({
      ...{ name, program, logPath },
      environment: { ...this.#options.environment(name), ...own },
      onNote: (from, note) => this.#take(from, note),
      onExit: (from, code, signal) => this.#exited(from, code, signal),
    });
    this.all.add(child);
  }

  #take(child: Child, note: Note): void {
    const { tally, signals } = this.#options;
    if (note.note === "start") child.calls.set(note.call, { ...note, startedAt: performance.now() });
    else if (note.note === "settle") this.#settled(child, note);
    else if (note.note === "ack") tally.acknowledge(note);
    else if (note.note === "steps") tally.stepped(note.count, note.worstMs);
    else if (note.note === "slow-step") this.#slowStep(child, note);
    else if (note.note === "violation") tally.violated(`${child.name}: ${note.what}`);
    else if (note.note === "leased" || note.note === "released") this.#lastHolder.set(note.sandboxId, child.name);
    signals.emit({ child, what: note.note });
  }

  #settled(child: Child, { call, ms, error }: Extract<Note, { note: "settle" }>): void {
    const started = child.calls.get(call);
    if (started === undefined) return;
    child.calls.delete(call);
    const { kind, owner, startedAt, deadlineMs } = started;
    this.#options.tally.settled(kind, error);
    const lateMs = ms - deadlineMs - child.pausedSince(startedAt);
    if (lateMs > SLACK_MS)
      this.#options.tally.violated(
        `${child.name}: ${kind} of ${owner} settled ${Math.round(lateMs)} ms after its deadline`,
      );
  }

  #slowStep(child: Child, { name, ms, allowedMs }: Extract<Note, { note: "slow-step" }>): void {
    const lateMs = ms - allowedMs - child.pausedSince(performance.now() - ms);
    if (lateMs > STEP_SLACK_MS)
      this.#options.tally.violated(`${child.name}: the step ${name} took ${Math.round(ms)} ms of ${allowedMs} allowed`);
  }

  #exited(child: Child, code: number | null, signal: string | null): void {
    this.all.delete(child);
    this.#options.signals.emit({ child, what: "gone" });
    if (this.#killed.has(child) || (child.isClosing && code === 0)) return;
    this.#options.tally.violated(
      `${child.name} ended by itself with ${signal ?? `code ${code}`}; see ${child.name}.log.stderr`,
    );
  }
}
