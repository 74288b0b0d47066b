/** Keeps a workspace within its disk budget: a guard that watches and stops, or the kernel. */

import type { ResourceUsage, Sandbox } from "@sandlot/contract";
import type { DiskBudget } from "./budget.ts";

/** Programs' texts for `EDQUOT`; Node has only its number. */
export const QUOTA_WORDS = /disk quota exceeded|EDQUOT|unknown system error -122\b/i;

export interface DiskKeeper {
  /** Consulted before writes through the API; `null` where the kernel enforces the budget. */
  readonly budget: DiskBudget | null;
  /** How much more fits, where the kernel enforces the budget; bytes. */
  room(): number;
  /** The workspace's known usage and its limit; bytes. */
  usage(): Pick<ResourceUsage, "diskBytes" | "diskMaxBytes">;
  /** Increases each time writers were stopped. */
  readonly stopCount: number;
  /** The message about stopped writers. */
  readonly says: string;
  /** The message about a write that the kernel refused; `null` where the kernel has no budget. */
  readonly saysOfFile: string | null;
  /** Whether a failed command's last output means that the kernel refused it room in the workspace. */
  hasRefused(stderr: string): boolean;
  use(sandbox: Sandbox): void;
  close(): void;
}
