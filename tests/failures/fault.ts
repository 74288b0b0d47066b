/** A fault of the failure budget: how it is made, and the test that shows that its repair is right. */

import type { Stage, Struck } from "./stage/stage.ts";
import type { StageStore } from "./stage/stage-store.ts";

/** Every kind that the document must name. */
export const FAULT_KINDS = [
  "gateway killed",
  "gateway stopped",
  "gateway cut off from the store",
  "gateway cut off from the engine",
  "store killed",
  "store paused",
  "store failed over with lost writes",
  "store moved",
  "sandbox killed",
  "engine restarted",
  "disk full",
  "disk of the store full",
  "clock an hour ahead",
  "clock an hour behind",
  "clock drifts",
  "machine suspended",
] as const;

export type FaultKind = (typeof FAULT_KINDS)[number];

export interface Fault {
  readonly kind: FaultKind;
  /** How it is made here, in one line. */
  readonly how: string;
  /** Whose events or answers count as its detection, in one line. */
  readonly detection: string;
  /** Path of the test that shows that nothing goes wrong meanwhile. */
  readonly test: string;
  /** The same by the name of a store, where that is another one. */
  readonly testsOf?: Readonly<Record<string, string>>;
  /** Before the gateways start. */
  prepare?(stage: Stage): Promise<void>;
  /** Why a stage with this store cannot have the fault; `null`: it can. */
  unfit?(store: StageStore): string | null;
  strike(stage: Stage): Promise<Struck>;
}
