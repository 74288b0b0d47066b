/** The workloads of a turn. `state_reuse` writes in one turn and expects to find it in the next. */

export interface Step {
  readonly command: string;
  /** What its output must contain. */
  readonly expected?: string;
}

const STATE = "benchmark-state-42";

const python = (...lines: readonly string[]) => ["python3 - <<'PY'", ...lines, "PY"].join("\n");

export const WORKLOADS = {
  noop: () => ({ command: "true" }),
  python_small: () => ({ command: 'python3 -c "print(sum(range(100000)))"', expected: "4999950000" }),
  fs_1mb: () => ({
    command: python(
      "from pathlib import Path",
      'file = Path("/tmp/bench.txt")',
      'file.write_text("x" * 1024 * 1024)',
      "print(len(file.read_text()))",
    ),
    expected: "1048576",
  }),
  sleep_2s: () => ({ command: python("import time", "time.sleep(2)", 'print("done")'), expected: "done" }),
  state_reuse: (iteration: number) =>
    iteration % 2 === 0
      ? { command: `printf ${STATE} > /tmp/state.txt` }
      : { command: "cat /tmp/state.txt", expected: STATE },
} as const satisfies Record<string, (iteration: number) => Step>;

export type WorkloadName = keyof typeof WORKLOADS;
