/** `sandlot serve` as a separate process, on real sandboxes, so that it can be killed. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { CACHE, MAIN } from "../../cli/run-cli.ts";
import { keepNoBlank } from "../../support/no-blank.ts";

export const hasBubblewrap = (process.env.PATH ?? "").split(":").some((folder) => existsSync(join(folder, "bwrap")));

export interface GatewayProcess {
  readonly url: string;
  readonly key: string;
  /** From the start of the process to its first line. */
  readonly startedInMs: number;
  /** Nothing is drained, handed over or cleaned up. */
  kill(): Promise<void>;
  stop(): Promise<number | null>;
}

export async function startGatewayProcess(
  home: string,
  options: { readonly port?: number; readonly arguments?: readonly string[] } = {},
): Promise<GatewayProcess> {
  const began = performance.now();
  const args = ["serve", "--port", String(options.port ?? 0), "--json", ...(options.arguments ?? [])];
  keepNoBlank(home);
  const { SANDLOT_CONFIG: _, SANDLOT_URL: __, ...inherited } = process.env;
  const child = spawn(process.execPath, ["--conditions=sandlot-source", MAIN, ...args], {
    env: { ...inherited, ...CACHE, SANDLOT_HOME: home },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const url = await firstLine(child);
  const end = async (signal: NodeJS.Signals) => {
    const exited = once(child, "exit") as Promise<[number | null]>;
    child.kill(signal);
    return (await exited)[0];
  };
  return {
    url,
    key: (await readFile(join(home, "operator.key"), "utf8")).trim(),
    startedInMs: performance.now() - began,
    kill: async () => void (await end("SIGKILL")),
    stop: () => end("SIGTERM"),
  };
}

function firstLine(child: ChildProcess): Promise<string> {
  let stderr = "";
  child.stderr?.setEncoding("utf8").on("data", (text: string) => (stderr += text));
  return new Promise((resolve, reject) => {
    child.stdout?.setEncoding("utf8").once("data", (text: string) => {
      resolve((JSON.parse(text.split("\n")[0] ?? "") as { listening: string }).listening);
    });
    child.once("exit", (code) => reject(new Error(`the gateway ended with ${code}: ${stderr}`)));
  });
}
