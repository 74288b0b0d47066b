/** The command line in this process: a start of Node for each would take longer than most commands do. */

import { run } from "../../src/cli/program.ts";
import type { Ended } from "./run-cli.ts";

/** Interrupted as soon as its output matches `until`. Each write of bytes takes as long as `slow` does. */
export async function runHere(
  args: readonly string[],
  environment: Readonly<Record<string, string>>,
  until?: RegExp,
  slow?: () => Promise<void>,
): Promise<Omit<Ended, "signal">> {
  const stop = new AbortController();
  let [stdout, stderr] = ["", ""];
  const terminal = {
    out: (text: string) => {
      stdout += text;
      if (until?.test(stdout) === true) stop.abort();
    },
    error: (text: string) => {
      stderr += text;
    },
    write: async (stream: "stdout" | "stderr", bytes: Uint8Array) => {
      if (stream === "stdout") stdout += Buffer.from(bytes).toString("utf8");
      else stderr += Buffer.from(bytes).toString("utf8");
      if (until?.test(stdout) === true) stop.abort();
      await slow?.();
      return true;
    },
    isWatched: false,
    stdin: process.stdin,
    size: () => ({ columns: 80, rows: 24 }),
    onResize: () => () => undefined,
    environment: { PATH: process.env.PATH ?? "", ...environment },
  };
  const code = await run(["node", "sandlot", ...args], terminal, stop.signal);
  return { code, stdout, stderr };
}
