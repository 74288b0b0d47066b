/**
 * Programs as started at a terminal: from the start of the process to its end, and the processor time of the process
 * and its children.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";

export interface Cost {
  readonly wallNs: number;
  readonly processorNs: number;
}

const MEASURED = `TIMEFORMAT='%3U %3S %3R'; time "$@" >/dev/null 2>&1 </dev/null; status=$?; exit $status`;

/** Rejects when it fails. The shell's own `time` measures, from within. */
export async function costOf(command: readonly string[], environment: NodeJS.ProcessEnv): Promise<Cost> {
  const child = spawn("bash", ["-c", `${MEASURED}`, "bash", ...command], {
    env: environment,
    stdio: ["ignore", "ignore", "pipe"],
  });
  let text = "";
  child.stderr.on("data", (piece: Buffer) => {
    text += piece.toString();
  });
  const [code] = await once(child, "close");
  if (code !== 0) throw new Error(`${command.join(" ")} ended with ${code}`);
  const [user = 0, system = 0, wall = 0] = text.trim().split(" ").map(Number);
  return { wallNs: wall * 1e9, processorNs: (user + system) * 1e9 };
}

/** A side that is measured only by its end. */
export async function runProgram(command: readonly string[], environment: NodeJS.ProcessEnv): Promise<void> {
  const [program = "", ...args] = command;
  const child = spawn(program, args, { env: environment, stdio: ["ignore", "ignore", "ignore"] });
  const [code] = await once(child, "close");
  if (code !== 0) throw new Error(`${command.join(" ")} ended with ${code}`);
}
