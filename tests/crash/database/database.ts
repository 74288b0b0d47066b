/**
 * The database below the store of a run, as main sees it: where it is, and what must be true of it when every process
 * has ended. A database that is a server can also be harmed (`StoreServer`).
 */

import type { StoreAddress } from "./store-address.ts";

export interface Database {
  readonly address: StoreAddress;
  /** How long one step of the store may take; `null`: the store has no such setting. */
  readonly stepMs: number | null;
  /** The run's faults can make it lose commits that it acknowledged. */
  readonly losesCommits: boolean;
  /** `null`: a file, which has no process to harm. */
  readonly server: StoreServer | null;
  /** Leftovers and damage, after every process has closed its store. */
  problems(): Promise<readonly string[]>;
  /** For an exit that cannot wait. */
  endNow(): void;
  end(): Promise<void>;
}

/** A server that can be harmed. Each promise resolves when the harm is done, or the server answers again. */
export interface StoreServer {
  /** SIGKILL to every process of the server. */
  kill(): Promise<void>;
  /** Starts it again on the same data, and resolves when it answers. */
  restart(): Promise<void>;
  /** SIGSTOP to every process of the server. */
  stop(): void;
  resume(): void;
  /** Its first processes, which have started all others of the server. None while it is killed. */
  pids(): readonly number[];
}
