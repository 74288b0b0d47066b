/**
 * Who waits for room at an instance: how many, and in which order they get it.
 *
 * Only what is certain counts. A user is known to wait from the event that says so until its next try to reserve; a call of
 * that user which failed in between may have been the one that waited.
 */

import type { FleetEvent } from "@sandlot/contract";
import type { SandboxRecord } from "../../../packages/fleet/src/store/record.ts";
import type { ReserveAnswer } from "../../../packages/fleet/src/store/store.ts";
import type { Instance } from "../process/instance.ts";
import type { StoreStep } from "../store/sim-store.ts";
import type { Findings } from "./findings.ts";
import type { Truth } from "./truth.ts";

interface Waiting {
  readonly since: number;
  /** How often others were let in since this user's last turn. */
  readonly letIn: Map<string, number>;
}

export class AdmissionChecks {
  readonly #truth: Truth;
  readonly #findings: Findings;
  readonly #waiting = new Map<Instance, Map<string, Waiting>>();
  readonly #evictions = new Map<Instance, number>();

  constructor(truth: Truth, findings: Findings) {
    this.#truth = truth;
    this.#findings = findings;
  }

  /** An instance told that a caller has to wait. */
  told(instance: Instance, event: FleetEvent): void {
    if (event.type !== "acquire-queued") return;
    this.#waitingAt(instance).set(event.user, { since: this.#truth.now, letIn: new Map() });
    const { onFull, queueMax } = this.#truth.settings.limits;
    // Room that is being made for a caller is waited for beside the queue; two that come at once may wait for the same.
    const evictions = this.#evictions.get(instance) ?? 0;
    const most = (onFull === "wait" ? queueMax : 0) + 2 * evictions;
    this.#findings.check(
      "queue-is-bounded",
      event.queued <= most,
      () => `${event.queued} wait at ${instance.name}: the queue has ${queueMax}, ${evictions} were evicted`,
    );
  }

  put(before: SandboxRecord | null, after: SandboxRecord, { by }: StoreStep): void {
    if (before?.state !== "ready" || after.state !== "stopping" || after.reason !== "evicted") return;
    this.#evictions.set(by, (this.#evictions.get(by) ?? 0) + 1);
  }

  /** An instance heard what came of a try to reserve. */
  answered({ by, method, args, sentAt }: StoreStep, result: unknown): void {
    const user = method === "reserve" ? (args[0] as { key: { user: string } | null }).key?.user : undefined;
    if (user === undefined) return;
    const answer = result as ReserveAnswer;
    const waiting = this.#waitingAt(by);
    this.#checkTurn(by, user, waiting.get(user));
    // Whom only the fleet's limit keeps out is still next. Of one who was let in, nothing says whether it waits again.
    if (answer.kind !== "full") waiting.delete(user);
    else if (answer.scope === "user") waiting.get(user)?.letIn.clear();
    if (answer.kind !== "reserved") return;
    for (const [other, { since, letIn }] of waiting)
      if (other !== user && sentAt > since) letIn.set(user, (letIn.get(user) ?? 0) + 1);
  }

  failed({ by, method, args }: StoreStep): void {
    if (method === "reserve") this.gaveUp(by, (args[0] as { key: { user: string } | null }).key?.user ?? null);
  }

  /** A call of this user has failed at the instance; `null`: of any. */
  gaveUp(instance: Instance, user: string | null): void {
    const waiting = this.#waitingAt(instance);
    if (user === null) waiting.clear();
    else waiting.delete(user);
    // What was reserved for it may have been given back.
    for (const { letIn } of waiting.values()) letIn.delete(user ?? "");
  }

  #checkTurn(instance: Instance, user: string, waiting: Waiting | undefined): void {
    if (waiting === undefined) return;
    const twice = [...waiting.letIn].find(([, times]) => times > 1)?.[0];
    this.#findings.check(
      "users-take-turns",
      twice === undefined,
      () => `${twice} was let in twice at ${instance.name} while ${user} waits since ${waiting.since}`,
    );
  }

  #waitingAt(instance: Instance): Map<string, Waiting> {
    const waiting = this.#waiting.get(instance) ?? new Map<string, Waiting>();
    this.#waiting.set(instance, waiting);
    return waiting;
  }
}
