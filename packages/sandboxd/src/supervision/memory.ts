/**
 * State that outlives this run of the daemon: a few lines in a pipe that the supervisor holds and reads only when the
 * daemon has died (see `supervisor.sh`). After a death the next run must still know the credentials of the last rebind,
 * and the supervisor must know whether the daemon was used: that decides whether another restart makes sense.
 *
 * Invariant: a line is short enough for the kernel to write it whole, and contains no secret.
 */

import { writeSync } from "node:fs";
import type { Secret } from "../wire/credentials.ts";

export class SupervisorMemory {
  readonly #fd: number | null;
  #used = false;

  /** Without a supervisor there is no next run. */
  constructor(fd: number | null) {
    this.#fd = fd;
  }

  /** An authorized request has arrived. */
  noteUse(): void {
    if (this.#used) return;
    this.#used = true;
    this.#write("up");
  }

  rebound({ generation, tokenHash }: Secret): void {
    this.#write(JSON.stringify({ generation, tokenHash }));
  }

  #write(line: string): void {
    if (this.#fd !== null) writeSync(this.#fd, `${line}\n`);
  }
}
