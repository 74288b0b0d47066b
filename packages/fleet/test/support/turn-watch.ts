/** How long each turn of the event loop takes, in processor time of this thread, and the memory in use meanwhile. */

export class TurnWatch {
  readonly #maxMs: number;
  readonly #running = new Set<string>();
  /** Those that have ended in this turn. */
  readonly #ending: string[] = [];
  readonly #slow: string[] = [];
  readonly #memoryBefore = memory();
  #before = process.threadCpuUsage();
  #worstMs = 0;
  #mostBytes = 0;
  #turns = 0;
  #isOver = false;

  constructor(maxMs: number) {
    this.#maxMs = maxMs;
    setImmediate(() => this.#turn());
  }

  begin(name: string): void {
    this.#running.add(name);
  }

  end(name: string): void {
    this.#ending.push(name);
  }

  stop(): { readonly worstMs: number; readonly memoryBytes: number; readonly slow: readonly string[] } {
    this.#isOver = true;
    return { worstMs: this.#worstMs, memoryBytes: this.#mostBytes, slow: this.#slow };
  }

  #turn(): void {
    const { user, system } = process.threadCpuUsage(this.#before);
    const tookMs = (user + system) / 1_000;
    this.#worstMs = Math.max(this.#worstMs, tookMs);
    if (tookMs > this.#maxMs)
      this.#slow.push(
        `a turn took ${tookMs.toFixed(1)} ms of processor time during:\n  ${[...this.#running].join("\n  ")}`,
      );
    for (const name of this.#ending.splice(0)) this.#running.delete(name);
    if (++this.#turns % 64 === 0) this.#mostBytes = Math.max(this.#mostBytes, memory() - this.#memoryBefore);
    this.#before = process.threadCpuUsage();
    if (!this.#isOver) setImmediate(() => this.#turn());
  }
}

/** The longest turn during `work`, in milliseconds of processor time. Waits for the last one. */
export async function worstTurn(work: () => Promise<unknown>): Promise<number> {
  const watch = new TurnWatch(Number.POSITIVE_INFINITY);
  try {
    await work();
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
  } finally {
    watch.stop();
  }
  return watch.stop().worstMs;
}

function memory(): number {
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
