/**
 * The part of the store's contract that moves a fleet to another store. `transactions/transfer.ts` defines the steps,
 * `export-store.ts` and `import-store.ts` put them in order.
 */

import type { Epoch, SandboxId, ThreadId, UserId } from "@sandlot/contract";
import type { SandboxRecord, Tombstone } from "../record.ts";
import type { StoreMeta } from "../store.ts";

export interface StoreTransfer {
  /**
   * Closes the store to instances: it begins no session while it has a mark. `importing` needs a store that no instance
   * has used, and takes over an import of the same file. Returns the present mark, which is another one if there was one
   * already; `null`: the store was used.
   */
  beginTransfer(mark: WantedMark): Promise<TransferMark | null>;
  /** Removes this mark. False: it is not there, or another process has taken it over. */
  endTransfer(mark: WantedMark): Promise<boolean>;
  exportPage(after: ExportCursor | null, limit: number): Promise<ExportPage>;
  /** Writes the rows that the store does not have yet, under the mark of this import. */
  importRows(claim: ImportClaim, rows: readonly TransferRow[]): Promise<ImportAnswer>;
  /** Ends the import, and the recovery of the engines of which it is whole. */
  finishImport(request: FinishImportRequest): Promise<FinishAnswer>;
  /** The facts about the store itself, for operators. */
  overview(): Promise<StoreOverview>;
  /** A write that leaves nothing but one unused generation, to measure how long a write takes. */
  probe(): Promise<void>;
}

/** Why a store serves no instance: an export has closed it, or an import into it has not ended. */
export interface TransferMark {
  readonly state: "moved" | "importing";
  /** Of the export. */
  readonly id: string;
  /** On the store's clock. */
  readonly since: number;
  /** The epoch in which this process began: another one has lost what it imported. Absent: an earlier version wrote it. */
  readonly epoch?: Epoch;
  /** Of an import: the process that does it. */
  readonly importer?: string;
  /** Of an import: 1 for the first process, and one more for each that took it over. */
  readonly attempt?: number;
}

/** A mark as its process names it. */
export type WantedMark =
  | { readonly state: "moved"; readonly id: string }
  | ({ readonly state: "importing" } & ImportClaim);

/** One process that imports one file. Every step names it, so that a process whose import was taken over is refused. */
export interface ImportClaim {
  /** Of the export. */
  readonly id: string;
  /** Random: of all processes that import the file only the last one goes on. */
  readonly importer: string;
}

/** Why a step of an import is refused. */
export type ImportRefusal =
  /** The store has no mark of this import. */
  | { readonly kind: "unmarked" }
  /** Another process imports the same file since. */
  | { readonly kind: "taken-over" }
  /** The store has lost writes, and with them rows of this import. */
  | { readonly kind: "new-epoch" };

/** A row of an export. Sessions are not exported: their processes belong to the former store. */
export type TransferRow =
  | { readonly kind: "tombstone"; readonly tombstone: Tombstone }
  | { readonly kind: "home"; readonly home: ThreadHome }
  | { readonly kind: "record"; readonly record: SandboxRecord };

/** The engine on which a thread lives. */
export interface ThreadHome {
  readonly user: UserId;
  readonly thread: ThreadId;
  readonly engine: string;
}

/** The last row of the page before. Only `exportPage` understands it. */
export type ExportCursor = string;

export interface ExportPage {
  readonly rows: readonly TransferRow[];
  readonly next: ExportCursor | null;
}

export type ImportAnswer =
  | { readonly kind: "imported" }
  | ImportRefusal
  /** An instance has served from this store and this record's engine before. */
  | { readonly kind: "used"; readonly engine: string }
  /** The thread lives on another engine here. */
  | { readonly kind: "rehomed"; readonly home: ThreadHome }
  /** The thread of this record has another record. */
  | { readonly kind: "clash"; readonly sandboxId: SandboxId };

export type FinishAnswer = { readonly kind: "finished" } | ImportRefusal;

export interface FinishImportRequest extends ImportClaim {
  /** The former store's counter. */
  readonly generation: number;
  /** The engines of which the import has everything that there is to know. Not shared: any engine stands for all. */
  readonly recovered: readonly string[];
}

export interface StoreOverview extends StoreMeta {
  readonly generation: number;
  /** The store's clock. */
  readonly now: number;
  readonly transfer: TransferMark | null;
}
