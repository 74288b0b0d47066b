/**
 * A store made of `Tables` and a way to run one synchronous step on them as a transaction. `transactions/` defines each
 * step; an implementation only decides where the rows are and how a step becomes atomic.
 */

import type { SandboxId } from "@sandlot/contract";
import type { SharedEntries } from "./entries.ts";
import type { StepObserver } from "./step-observer.ts";
import { ENDED_MAX, type LeaseSeen, type Store } from "./store.ts";
import type { Tables } from "./tables.ts";
import * as making from "./transactions/creation.ts";
import * as engines from "./transactions/engines.ts";
import * as recovering from "./transactions/recovery.ts";
import * as remoteLeases from "./transactions/remote-leases.ts";
import * as ending from "./transactions/removal.ts";
import * as sessions from "./transactions/sessions.ts";
import * as transfer from "./transactions/transfer.ts";

type Argument<Method extends keyof Store> = Store[Method] extends (argument: infer A, ...rest: never[]) => unknown
  ? A
  : never;

export abstract class TransactionalStore implements Store {
  abstract readonly kind: string;
  readonly promise: Store["promise"] = "linearizable";
  readonly entries: SharedEntries | null = null;
  abstract readonly isShared: boolean;
  observeSteps?(observer: StepObserver): void;
  abstract watch(hint: () => void): () => void;
  abstract close(): Promise<void>;
  /** Runs `step` as one transaction. `operation` names it in errors. */
  protected abstract run<T>(operation: string, access: "read" | "write", step: (tables: Tables) => T): Promise<T>;

  beat(request: Argument<"beat">) {
    return this.run("beat", "write", (tables) => sessions.beat(tables, request));
  }
  sessions() {
    return this.run("sessions", "read", (tables) => tables.sessions());
  }
  endDeadSession(peer: Argument<"endDeadSession">, beat: number) {
    return this.run("endDeadSession", "write", (tables) => sessions.endDeadSession(tables, peer, beat));
  }
  leave(instance: Argument<"leave">) {
    return this.run("leave", "write", (tables) => sessions.leave(tables, instance));
  }

  meta(engine = "") {
    return this.run("meta", "read", (tables) => {
      const { epoch, recovering } = tables.meta();
      return { epoch, recovering: tables.isShared ? tables.isRecovering(engine) : recovering };
    });
  }
  locate(request: Argument<"locate">) {
    // Where it is shared, it reads several rows, which must fit together.
    return this.run("locate", this.isShared ? "write" : "read", (tables) => engines.locate(tables, request));
  }
  get(sandboxId: SandboxId) {
    return this.run("get", "read", (tables) => tables.record(sandboxId));
  }
  find(...[user, thread]: Parameters<Store["find"]>) {
    return this.run("find", "read", (tables) => tables.recordOf(user, thread));
  }
  list(filter?: Parameters<Store["list"]>[0]) {
    return this.run("list", "read", (tables) => tables.records(filter));
  }
  census() {
    return this.run("census", "read", (tables) => tables.census(null));
  }
  tombstone(sandboxId: SandboxId) {
    return this.run("tombstone", "read", (tables) => tables.tombstone(sandboxId));
  }
  tombstones(filter: Argument<"tombstones">) {
    return this.run("tombstones", "read", (tables) => tables.tombstones(filter, ENDED_MAX));
  }

  reserve(request: Argument<"reserve">) {
    return this.run("reserve", "write", (tables) => making.reserve(tables, request));
  }
  publish(request: Argument<"publish">) {
    return this.run("publish", "write", (tables) => making.publish(tables, request));
  }
  take(request: Argument<"take">) {
    return this.run("take", "write", (tables) => making.take(tables, request));
  }
  hold(request: Argument<"hold">) {
    return this.run("hold", "write", (tables) => making.hold(tables, request));
  }
  unhold(request: Argument<"unhold">) {
    return this.run("unhold", "write", (tables) => making.unhold(tables, request));
  }
  bind(request: Argument<"bind">) {
    return this.run("bind", "write", (tables) => making.bind(tables, request));
  }
  confirmBound(...args: Parameters<Store["confirmBound"]>) {
    return this.run("confirmBound", "write", (tables) => making.confirmBound(tables, ...args));
  }

  stop(request: Argument<"stop">) {
    return this.run("stop", "write", (tables) => ending.stop(tables, request));
  }
  takeOver(request: Argument<"takeOver">) {
    return this.run("takeOver", "write", (tables) => ending.takeOver(tables, request));
  }
  remove(request: Argument<"remove">) {
    return this.run("remove", "write", (tables) => ending.remove(tables, request));
  }

  grantLease(request: Argument<"grantLease">) {
    return this.run("grantLease", "write", (tables) => remoteLeases.grantLease(tables, request));
  }
  renewLease(leaseId: Argument<"renewLease">) {
    return this.run("renewLease", "write", (tables) => remoteLeases.renewLease(tables, leaseId));
  }
  findLease(leaseId: Argument<"findLease">) {
    return this.run("findLease", "read", (tables) => remoteLeases.findLease(tables, leaseId));
  }
  releaseLease(leaseId: Argument<"releaseLease">) {
    return this.run("releaseLease", "write", (tables) => remoteLeases.releaseLease(tables, leaseId));
  }
  expireLease(leaseId: Argument<"expireLease">, seen: LeaseSeen) {
    return this.run("expireLease", "write", (tables) => remoteLeases.expireLease(tables, leaseId, seen));
  }

  restore(request: Argument<"restore">) {
    return this.run("restore", "write", (tables) => recovering.restore(tables, request));
  }
  rejoin(request: Argument<"rejoin">) {
    return this.run("rejoin", "write", (tables) => recovering.rejoin(tables, request));
  }
  adopt(request: Argument<"adopt">) {
    return this.run("adopt", "write", (tables) => recovering.adopt(tables, request));
  }
  claimForRemoval(request: Argument<"claimForRemoval">) {
    return this.run("claimForRemoval", "write", (tables) => recovering.claimForRemoval(tables, request));
  }
  endRecovery(epoch: Argument<"endRecovery">, engine: string) {
    return this.run("endRecovery", "write", (tables) => recovering.endRecovery(tables, epoch, engine));
  }

  beginTransfer(mark: Argument<"beginTransfer">) {
    return this.run("beginTransfer", "write", (tables) => transfer.beginTransfer(tables, mark));
  }
  endTransfer(mark: Argument<"endTransfer">) {
    return this.run("endTransfer", "write", (tables) => transfer.endTransfer(tables, mark));
  }
  exportPage(...[after, limit]: Parameters<Store["exportPage"]>) {
    return this.run("exportPage", "read", (tables) => transfer.exportPage(tables, after, limit));
  }
  importRows(...[claim, rows]: Parameters<Store["importRows"]>) {
    return this.run("importRows", "write", (tables) => transfer.importRows(tables, claim, rows));
  }
  finishImport(request: Argument<"finishImport">) {
    return this.run("finishImport", "write", (tables) => transfer.finishImport(tables, request));
  }
  overview() {
    return this.run("overview", "write", (tables) => transfer.overview(tables));
  }
  probe() {
    return this.run("probe", "write", (tables) => void making.nextGeneration(tables));
  }
}
