/**
 * The source of an agent's sandboxes: a fleet in this process, or the client of a gateway. Tools and adapters use only
 * this interface, so that one can replace the other.
 *
 * Invariants
 * - Every lease needs its own release; a release is idempotent and ends no other lease.
 * - `lease.sandbox` is the sandbox in its present generation. It is read from the lease for each use.
 * - The source renews a lease that needs it (`ttlMs`), as long as its process lives.
 */

import type { Checkpoint, LossReason, Recovery, Sandbox, SandboxAbout } from "@sandlot/contract";

export interface SandboxSource {
  acquire(request?: SandboxRequest): Promise<SandboxLease>;
  /** Facts about its sandboxes, if known before there is one. */
  about?(blueprint?: string): SandboxAbout;
  /** Earlier states of threads. Absent: this source has none. */
  readonly checkpoints?: {
    undo(
      key: { readonly thread: string; readonly user?: string },
      options?: { readonly force?: boolean; readonly signal?: AbortSignal },
    ): Promise<{ readonly checkpoint: Checkpoint; readonly safety: Checkpoint }>;
  };
}

export interface SandboxRequest {
  readonly user?: string;
  readonly thread?: string;
  readonly blueprint?: string;
  /** The purpose, in a word or two; shown as the holder's purpose. */
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
