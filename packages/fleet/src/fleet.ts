/**
 * What users of the library touch: a fleet, and the leases it gives.
 *
 *   await using fleet = await openFleet();
 *   await using lease = await fleet.acquire({ thread: "t1" });
 *   const result = await lease.sandbox.exec("ls");
 */

import type { Duplex } from "node:stream";
import type {
  AuditFinding,
  FleetEvent,
  FleetEventType,
  Generation,
  InstanceId,
  LeaseId,
  LossReason,
  Recovery,
  Sandbox,
  SandboxAbout,
  SandboxId,
  SandboxSummary,
  StopReason,
  ThreadId,
  ThreadSummary,
  UserId,
} from "@sandlot/contract";

export interface Fleet extends AsyncDisposable {
  readonly instanceId: InstanceId;
  /** A right to use the thread's sandbox, which is found, bound or made. Every lease needs its own release. */
  acquire(request?: AcquireRequest): Promise<Lease>;
  /** Makes the thread's sandbox ready without taking a lease. Resolves when it is ready. */
  warm(request: WarmRequest): Promise<void>;
  /** The sandbox with this id, if this instance holds it. In memory only, never I/O. */
  get(sandboxId: SandboxId | string): Sandbox | undefined;
  /** Ends a thread's sandbox. Refused while others hold it unless forced. With `purge` the workspace goes too. */
  destroy(key: ThreadKeyInput, options?: DestroyOptions): Promise<DestroyOutcome>;
  /** Ends a blank, which has no thread to be asked for by. The pool makes another where one is still wanted. */
  destroyBlank(
    sandboxId: SandboxId | string,
    options?: Pick<DestroyOptions, "signal" | "timeoutMs">,
  ): Promise<DestroyOutcome>;
  list(): Promise<readonly SandboxSummary[]>;
  /** The thread's sandbox, in whatever state; `null` when it has none. */
  find(key: ThreadKeyInput): Promise<SandboxSummary | null>;
  /** Every thread that has a sandbox or a workspace, by user and name. `user`: only this user's. */
  listThreads(filter?: { readonly user?: string }): Promise<readonly ThreadSummary[]>;
  /** `null` when the thread has neither a sandbox nor a workspace. Makes nothing. */
  findThread(key: ThreadKeyInput): Promise<ThreadSummary | null>;
  /**
   * Why is it alive, why was it stopped, who holds it, since when. Of a sandbox by its id or the beginning of it, also one
   * that has ended; or of a thread's sandbox, the present or the last one.
   */
  explain(sandbox: SandboxId | string | ThreadKeyInput, options?: ExplainOptions): Promise<Explanation>;
  /** Engine against store: what does not fit together. Only looks. */
  audit(options?: { readonly signal?: AbortSignal }): Promise<readonly AuditFinding[]>;
  readonly events: FleetEvents;
  /** Leases handed to remote callers, which any instance can renew or release. */
  readonly remoteLeases: RemoteLeases;
  /** What sandboxes of a blueprint are like, default `default`: for whoever has to tell a model. */
  about(blueprint?: string): SandboxAbout;
  /** Drains, then hands over: sandboxes stay for the next instance unless `destroy`. Idempotent. */
  close(options?: CloseOptions): Promise<void>;
}

export interface ThreadKeyInput {
  readonly user?: string;
  readonly thread: string;
}

export interface AcquireRequest {
  readonly user?: string;
  /** Without a thread: a sandbox of its own, which ends with its last lease. */
  readonly thread?: string;
  /** Only a thread that has a sandbox or files. One that has neither is refused with `thread_not_found` instead of begun. */
  readonly existing?: boolean;
  readonly blueprint?: string;
  /** What for, in a word or two; shown to whoever asks who holds a sandbox. */
  readonly purpose?: string;
  readonly signal?: AbortSignal;
  /** How long to wait, all steps together. Default `acquireTimeoutMs`. */
  readonly timeoutMs?: number;
  /** Makes it a lease of a remote caller: a row in the store that ends when it is not renewed for this long. */
  readonly ttlMs?: number;
}

export interface WarmRequest extends ThreadKeyInput {
  readonly blueprint?: string;
  readonly signal?: AbortSignal;
  readonly timeoutMs?: number;
}

export interface Lease extends AsyncDisposable {
  readonly id: LeaseId;
  readonly purpose: string;
  readonly acquiredAt: number;
  /** What the sandbox was made from. */
  readonly blueprint: string;
  /** The sandbox in its present generation. Take it from here each time: after a crash it is another object. */
  readonly sandbox: Sandbox;
  readonly generation: Generation;
  /**
   * What became of the thread's state since its last use. `kind` is `same` (the sandbox of before goes on), `restored`
   * (a new sandbox with the old workspace) or `empty` (a new one with an empty workspace); `lost` and `survived` name
   * what a model should be told.
   */
  readonly recovery: Recovery;
  /** A connection to what listens on a port of the sandbox. `capability_missing` where the backend has no previews. */
  connect(port: number, options?: { readonly signal?: AbortSignal }): Promise<Duplex>;
  /** Ends this lease and no other. Idempotent, and never rejects because the sandbox or the store is in trouble. */
  release(): Promise<void>;
  /** Called at once when the sandbox is lost. Returns how to stop listening. */
  onLost(listener: (loss: { readonly reason: LossReason; readonly generation: Generation }) => void): () => void;
}

export interface DestroyOptions {
  readonly force?: boolean;
  readonly purge?: boolean;
  readonly signal?: AbortSignal;
  /** How long to wait for the engine's confirmation before answering `stopping`. */
  readonly timeoutMs?: number;
}

/** `stopping`: it will be ended, but the engine has not confirmed yet. */
export type DestroyOutcome = "absent" | "stopped" | "stopping";

export interface CloseOptions {
  /** Also stop the sandboxes that nobody else holds. */
  readonly destroy?: boolean;
  /** How long to wait for leases to be released before letting go of them. */
  readonly drainMs?: number;
}

export interface FleetEvents extends AsyncIterable<FleetEvent> {
  on(listener: (event: FleetEvent) => void, ...types: FleetEventType[]): () => void;
}

export interface RemoteLeases {
  renew(leaseId: LeaseId | string): Promise<{ readonly expiresInMs: number }>;
  /** Idempotent: false when there was no such lease. */
  release(leaseId: LeaseId | string): Promise<boolean>;
}

export interface ExplainOptions {
  /** Only a sandbox of this user; another's is `sandbox_not_found`. */
  readonly user?: string;
  /** The process that asks is about to end: with no other one left, sandboxes end after `orphanTimeoutMs`. */
  readonly leaving?: boolean;
}

export interface Explanation {
  readonly sandboxId: SandboxId;
  readonly user: UserId | null;
  readonly thread: ThreadId | null;
  readonly state: SandboxSummary["state"] | "absent";
  /** One sentence for a person. */
  readonly summary: string;
  readonly holders: readonly { readonly who: string; readonly purpose: string; readonly since: number }[];
  /** `at` is `null` while it is being stopped by an instance that has not told this one when it began. */
  readonly stopped: { readonly reason: StopReason; readonly by: InstanceId; readonly at: number | null } | null;
  /** What would end it if nothing changes, and when. */
  readonly ends: { readonly reason: StopReason; readonly at: number } | null;
  /** What this instance saw of it lately. */
  readonly history: readonly FleetEvent[];
}
