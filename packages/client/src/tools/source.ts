/**
 * Where an agent's sandboxes come from: a fleet in this process, or the client of a gateway. Tools and adapters know
 * no more of either than this, so that one of them can take the place of the other.
 *
 * Invariants
 * - Every lease needs its own release; a release is idempotent and ends no other lease.
 * - `lease.sandbox` is the sandbox in its present generation. It is taken from the lease for each use.
 * - A lease that must be renewed to stay (`ttlMs`) is renewed by whoever gave it out, as long as its process lives.
 */

import type { LossReason, Recovery, Sandbox, SandboxAbout } from "@sandlot/contract";

export interface SandboxSource {
  acquire(request?: SandboxRequest): Promise<SandboxLease>;
  /** What its sandboxes are like, where that is known before there is one. */
  about?(blueprint?: string): SandboxAbout;
}

export interface SandboxRequest {
  readonly user?: string;
  readonly thread?: string;
  readonly blueprint?: string;
  /** What for, in a word or two; shown to whoever asks who holds a sandbox. */
  readonly purpose?: string;
  readonly timeoutMs?: number;
  readonly ttlMs?: number;
  readonly signal?: AbortSignal;
}

export interface SandboxLease {
  readonly id: string;
  readonly sandbox: Sandbox;
  readonly generation: number;
  readonly recovery: Recovery;
  release(): Promise<void>;
  onLost(listener: (loss: { readonly reason: LossReason; readonly generation: number }) => void): () => void;
}
