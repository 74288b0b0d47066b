/**
 * Signals, for the command line only: a library that installs handlers changes how its host process ends.
 *
 * The first SIGINT, SIGTERM or SIGHUP aborts the work's signal with an `Interruption`, so that it closes what it has
 * open. The second one ends the process at once.
 */

import { constants } from "node:os";

const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** Why a command's signal was aborted: the process received a signal to end. */
export class Interruption extends Error {
  override readonly name = "Interruption";
  readonly signalName: NodeJS.Signals;

  constructor(signalName: NodeJS.Signals) {
    super(`Interrupted by ${signalName}`);
    this.signalName = signalName;
  }

  /** As shells report it. */
  get exitCode(): number {
    return 128 + constants.signals[this.signalName];
  }
}

/** Runs `work` with a signal that the process's signals abort. Removes its handlers afterwards. */
export async function interruptible<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  const onSignal = (name: NodeJS.Signals) => {
    const interruption = new Interruption(name);
    if (controller.signal.aborted) process.exit(interruption.exitCode);
    controller.abort(interruption);
  };
  for (const name of SIGNALS) process.on(name, onSignal);
  try {
    return await work(controller.signal);
  } finally {
    for (const name of SIGNALS) process.off(name, onSignal);
  }
}
