/** How long each kind of step took, as percentiles. */

export class Latencies {
  readonly #steps = new Map<string, number[]>();

  async of<T>(name: string, step: () => Promise<T>): Promise<T> {
    const started = performance.now();
    try {
      return await step();
    } finally {
      const list = this.#steps.get(name) ?? [];
      list.push(performance.now() - started);
      this.#steps.set(name, list);
    }
  }

  count(name: string): number {
    return this.#steps.get(name)?.length ?? 0;
  }

  /** Of the steps since the first `from`. */
  percentile(name: string, share: number, from = 0): number {
    const list = (this.#steps.get(name) ?? []).slice(from).sort((a, b) => a - b);
    return list[Math.min(list.length - 1, Math.floor(list.length * share))] ?? Number.NaN;
  }

  table(): string {
    const lines = [...this.#steps].map(([name, list]) => {
      list.sort((a, b) => a - b);
      const at = (share: number) =>
        `${(list[Math.min(list.length - 1, Math.floor(list.length * share))] ?? 0).toFixed(1)} ms`;
      return `${name.padEnd(20)} ${String(list.length).padStart(8)}   p50 ${at(0.5)}   p90 ${at(0.9)}   p99 ${at(0.99)}   max ${at(1)}`;
    });
    return lines.join("\n");
  }
}
