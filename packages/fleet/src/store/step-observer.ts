/**
 * What an observer learns of the steps of a store on the network: their times, and what they cost. Stores in this process
 * or on its disk have no observer: their steps call no server.
 */

/** The cost of one step so far. */
export interface StepCost {
  /** Requests to the server: each is a round trip. */
  calls: number;
  /** Tries that another writer overtook. */
  conflicts: number;
  /** Tries whose request failed. */
  retries: number;
}

export interface StepObserver {
  /** Runs a step, and must settle as `work` does. `cost` grows until then. */
  around<T>(operation: string, cost: Readonly<StepCost>, work: () => Promise<T>): Promise<T>;
}

export interface ObservableSteps {
  /** Sets the one observer. Absent: this store calls no server. */
  observeSteps?(observer: StepObserver): void;
}
