/**
 * Whoever keeps a workspace within its disk budget: a guard that watches and stops, or the kernel.
 */

import type { ResourceUsage, Sandbox } from "@sandlot/contract";
import type { DiskBudget } from "./budget.ts";

/** What programs say of `EDQUOT`; Node knows it by its number only. */
export const QUOTA_WORDS = /disk quota exceeded|EDQUOT|unknown system error -122\b/i;

export interface DiskKeeper {
  /** What is asked before writes through the API; `null` where the kernel answers them. */
  readonly budget: DiskBudget | null;
  /** How much more fits, where the kernel answers; bytes. */
  room(): number;
  /** What the workspace takes, as far as it is known, and what it may take; bytes. */
  usage(): Pick<ResourceUsage, "diskBytes" | "diskMaxBytes">;
  /** Grows each time that writers were stopped. */
  readonly stopCount: number;
  /** What a person is told of writers that were stopped. */
  readonly says: string;
  /** The same of a write that the kernel refused; `null` where it holds no budget. */
  readonly saysOfFile: string | null;
  /** Whether what a failed command said last means that the kernel refused it room in the workspace. */
  hasRefused(stderr: string): boolean;
  use(sandbox: Sandbox): void;
  close(): void;
}
