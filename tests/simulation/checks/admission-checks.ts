/**
 * The admission queue of an instance: how many callers wait for room, and in which order the instance tries them.
 *
 * An event reports that a caller waits. A store step reports that the instance tries the caller. The report that a
 * caller gave up comes slightly later than the fact. So a caller that seems passed over is only a suspect. A later try
 * of the same caller makes it certain, because the caller then has waited the whole time.
 *
 * This file keeps its own copy of the order. Users take turns: an admitted user goes to the end. Within a user it is
 * first come, first served. Each round tries the users from the first on, and ends where the fleet has no room.
 */

import type { FleetEvent } from "@sandlot/contract";
import type { SandboxRecord } from "../../../packages/fleet/src/store/record.ts";
import type {
  BindRequest,
  ReserveAnswer,
  ReserveRequest,
  TakeRequest,
} from "../../../packages/fleet/src/store/store.ts";
import type { Instance } from "../process/instance.ts";
import type { StoreStep } from "../store/sim-store.ts";
import type { Findings } from "./findings.ts";
import type { Invariant } from "./invariants.ts";
import type { Truth } from "./truth.ts";

type Suspicion = { readonly invariant: Invariant; readonly detail: string };

/** One waiting caller. */
interface Ticket {
  readonly thread: string;
  readonly since: number;
  /** Violations to report if the caller still waits: it was passed over. */
  suspicions: Suspicion[];
  /** A call for its thread failed. Other callers may still wait for the same thread. */
  doubtful: boolean;
  /** Its user's own limit kept it out last: callers of other users may be tried before it. */
  full: boolean;
}

/** A user with waiting callers, the first caller first. */
interface Turn {
  readonly user: string;
  tickets: Ticket[];
  /** When it was last tried, or began to wait; in steps. */
  triedAt: number;
  /** When one of its callers last gave up. The running round may have passed over the rest. */
  gaveUpAt: number;
  /** Only the fleet's limit refused it: no other caller is tried before this one is retried. */
  next: boolean;
  /** Its place in the order is known: it did not begin to wait in a doubtful period. */
  certain: boolean;
}

const FRESH = { gaveUpAt: 0, next: false, certain: true };
const ORDERS = ["first-come-first-served", "users-take-turns", "queue-is-not-overtaken"] as const;

export class AdmissionChecks {
  readonly #truth: Truth;
  readonly #findings: Findings;
  /** By instance: users in the order of their turns. */
  readonly #turns = new Map<Instance, Turn[]>();
  /** The caller of each try. A late response may belong to a caller that left while another waits for the thread. */
  readonly #tries = new WeakMap<StoreStep, Ticket>();
  readonly #evictions = new Map<Instance, number>();
  /** Callers that their user's limit kept out when they were last tried. */
  readonly #refused = new Set<string>();
  #steps = 0;

  constructor(truth: Truth, findings: Findings) {
    this.#truth = truth;
    this.#findings = findings;
  }

  /** An instance reported that a caller has to wait. */
  told(instance: Instance, event: FleetEvent): void {
    if (event.type !== "acquire-queued") return;
    const { user, thread, queued } = event;
    this.#leave(instance, user, (ticket) => ticket.thread === thread);
    const turns = this.#turnsAt(instance);
    const full = this.#refused.delete(nameOf(instance, user, thread));
    const ticket = { thread, since: this.#truth.now, suspicions: [], doubtful: false, full };
    const turn = turns.find((other) => other.user === user);
    if (turn === undefined) turns.push({ user, tickets: [ticket], ...FRESH, triedAt: this.#step() });
    else {
      turn.certain &&= turn.tickets.some(({ doubtful }) => !doubtful);
      turn.tickets.push(ticket);
    }
    this.#checkLength(instance, queued);
  }

  #checkLength(instance: Instance, queued: number): void {
    const { onFull, queueMax } = this.#truth.settings.limits;
    // A caller waits outside the queue for room that an eviction makes. Two simultaneous callers may wait for the same.
    const evictions = this.#evictions.get(instance) ?? 0;
    const most = (onFull === "wait" ? queueMax : 0) + 2 * evictions;
    this.#findings.check(
      "queue-is-bounded",
      queued <= most,
      () => `${queued} wait at ${instance.name}: the queue has ${queueMax}, ${evictions} were evicted`,
    );
  }

  put(before: SandboxRecord | null, after: SandboxRecord, { by }: StoreStep): void {
    if (before?.state !== "ready" || after.state !== "stopping" || after.reason !== "evicted") return;
    this.#evictions.set(by, (this.#evictions.get(by) ?? 0) + 1);
  }

  /** An instance tries to reserve. */
  asked(step: StoreStep): void {
    const key = keyOf(step);
    if (key === null) return;
    const turns = this.#turnsAt(step.by);
    const turn = turns.find(({ user }) => user === key.user);
    const index = turn?.tickets.findIndex(({ thread }) => thread === key.thread) ?? -1;
    const ticket = turn?.tickets[index];
    if (turn === undefined || ticket === undefined) {
      const detail = `${key.user}/${key.thread} came later and was tried at ${step.by.name}`;
      const passedOver = turns.filter((other) => other === turn || !other.tickets.some(({ full }) => full));
      for (const { tickets } of passedOver)
        for (const other of tickets) suspect(other, "queue-is-not-overtaken", detail);
      return;
    }
    this.#tries.set(step, ticket);
    this.#confirm(step.by, key, ticket);
    const detail = `${key.user}/${key.thread} was tried at ${step.by.name}`;
    for (const earlier of turn.tickets.slice(0, index)) suspect(earlier, "first-come-first-served", detail);
    for (const other of turns.slice(0, turns.indexOf(turn))) {
      const [first] = other.tickets;
      const isPassedOver = other.next || Math.max(other.triedAt, other.gaveUpAt) < turn.triedAt;
      // A newcomer may be tried before a caller that waits for its own user's limit, also one whose earlier call left a ticket.
      if (first?.full === false && isPassedOver && other.certain && turn.certain)
        suspect(first, "users-take-turns", detail);
    }
    turn.triedAt = this.#step();
    turn.next = false;
  }

  /** A tried caller has waited, so its suspected violations are real. */
  #confirm(instance: Instance, { user, thread }: Key, { since, suspicions }: Ticket): void {
    for (const invariant of ORDERS) {
      const found = suspicions.find((suspicion) => suspicion.invariant === invariant);
      this.#findings.check(
        invariant,
        found === undefined,
        () => `${found?.detail} while ${user}/${thread} waits at ${instance.name} since ${since}`,
      );
    }
    suspicions.length = 0;
  }

  /** An instance got the result of a try to reserve. */
  answered(step: StoreStep, result: unknown): void {
    const tried = this.#tries.get(step);
    const turns = this.#turnsAt(step.by);
    const turn = tried === undefined ? undefined : turns.find(({ tickets }) => tickets.includes(tried));
    this.#noteRefusal(step, result);
    if (tried === undefined || turn === undefined) return;
    const answer = result as ReserveAnswer;
    tried.full = isFullForUser(answer);
    if (answer.kind === "full") turn.next = answer.scope !== "user";
    else {
      turns.splice(turns.indexOf(turn), 1);
      turns.push(turn);
      // The answer to a caller that may have left is no turn of the queue: then the user may have kept its place.
      turn.certain = !tried.doubtful;
      this.#leave(step.by, turn.user, (ticket) => ticket === tried);
    }
  }

  #noteRefusal(step: StoreStep, result: unknown): void {
    const key = bindingOf(step) ?? keyOf(step);
    if (key === null) return;
    const name = nameOf(step.by, key.user, key.thread);
    if (isFullForUser(result as ReserveAnswer)) this.#refused.add(name);
    else this.#refused.delete(name);
  }

  failed(step: StoreStep): void {
    const key = keyOf(step);
    if (key === null) return;
    this.gaveUp(step.by, key.user, key.thread);
    this.#leave(step.by, key.user, (ticket) => ticket === this.#tries.get(step));
  }

  /** A call of this user failed at the instance. `null`: a call without a thread, or of any user. */
  gaveUp(instance: Instance, user: string | null, thread: string | null): void {
    for (const turn of this.#turnsAt(instance)) {
      if (user !== null && turn.user !== user) continue;
      for (const ticket of turn.tickets) {
        if (thread === null ? !ticket.thread.startsWith("~") : ticket.thread !== thread) continue;
        ticket.doubtful = true;
        ticket.suspicions = [];
      }
      turn.gaveUpAt = this.#step();
      turn.next = false;
    }
  }

  #leave(instance: Instance, user: string, isGone: (ticket: Ticket) => boolean): void {
    const turns = this.#turnsAt(instance);
    const turn = turns.find((other) => other.user === user);
    if (turn === undefined) return;
    turn.tickets = turn.tickets.filter((ticket) => !isGone(ticket));
    if (turn.tickets.length === 0) turns.splice(turns.indexOf(turn), 1);
  }

  #step(): number {
    this.#steps += 1;
    return this.#steps;
  }

  #turnsAt(instance: Instance): Turn[] {
    const turns = this.#turns.get(instance) ?? [];
    this.#turns.set(instance, turns);
    return turns;
  }
}

type Key = { readonly user: string; readonly thread: string };

function isFullForUser(answer: ReserveAnswer): boolean {
  return answer.kind === "full" && answer.scope === "user";
}

function nameOf({ name }: Instance, user: string, thread: string): string {
  return `${name} ${user}/${thread}`;
}

/** For whom a step binds a blank; `null`: it does not. */
function bindingOf({ method, args }: StoreStep): Key | null {
  return method === "bind" ? (args[0] as BindRequest) : null;
}

/** For whom a step tries to reserve; `null`: it does not, or for no caller yet. */
function keyOf({ method, args }: StoreStep): Key | null {
  if (method === "reserve") return (args[0] as ReserveRequest).key;
  const request = method === "take" ? (args[0] as TakeRequest) : null;
  return request === null || request.orReserve === null ? null : { user: request.user, thread: request.thread };
}

function suspect(ticket: Ticket, invariant: Invariant, detail: string): void {
  if (!ticket.doubtful) ticket.suspicions.push({ invariant, detail });
}
