/**
 * The one invariant of a thread: never two sandboxes write its files. A writer inside each sandbox appends its
 * generation to a file of the workspace for as long as it runs, also when the fleet believes that it has ended. So the
 * file's lines never go back to an earlier generation.
 *
 * Beside it every use appends a line that was acknowledged. None may be missing later.
 */

import type { Lease } from "../../../packages/fleet/src/fleet.ts";
import type { Tally } from "../stage/tally.ts";

/** A placeholder for the generation, because the killed fleets fill it in by themselves. */
export const WRITER =
  'nohup sh -c "while :; do echo GENERATION >> generations; sleep 0.1; done" > /dev/null 2>&1 & echo writing';

export class Writers {
  readonly #tally: Tally;
  readonly #acknowledged = new Map<string, string[]>();
  #serial = 0;
  checkedCount = 0;
  lineCount = 0;
  doubleCount = 0;
  lostCount = 0;

  constructor(tally: Tally) {
    this.#tally = tally;
  }

  /** Checks what was written up to now, and begins to write. */
  async use(thread: string, lease: Lease): Promise<void> {
    await this.check(thread, lease);
    await lease.sandbox.exec(WRITER.replace("GENERATION", String(lease.generation)));
    this.#serial += 1;
    const line = `line-${this.#serial}`;
    const { exitCode } = await lease.sandbox.exec(`echo ${line} >> acknowledged`);
    if (exitCode === 0) this.#acknowledged.set(thread, [...(this.#acknowledged.get(thread) ?? []), line]);
  }

  async check(thread: string, lease: Lease): Promise<void> {
    const { stdout } = await lease.sandbox.exec("uniq generations 2>/dev/null; echo --; cat acknowledged 2>/dev/null");
    const [written = "", acknowledged = ""] = stdout.split("--\n");
    const generations = written.split("\n").filter(Boolean).map(Number);
    this.checkedCount += 1;
    this.lineCount += generations.length;
    if (generations.some((generation, index) => !(generation > (generations[index - 1] ?? -1)))) {
      this.doubleCount += 1;
      this.#tally.violated(`two sandboxes wrote the files of ${thread}: generations ${generations.join(" ")}`);
    }
    const lines = acknowledged.split("\n").filter(Boolean);
    const missing = (this.#acknowledged.get(thread) ?? []).filter((line) => !lines.includes(line));
    this.lostCount += missing.length;
    if (missing.length > 0) this.#tally.violated(`acknowledged lines of ${thread} are missing: ${missing.join(", ")}`);
  }

  forget(thread: string): void {
    this.#acknowledged.delete(thread);
  }
}
