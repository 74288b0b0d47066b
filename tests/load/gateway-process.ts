/** `sandlot serve` as a process that shares its home and its store with others. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const MAIN = fileURLToPath(new URL("../../packages/fleet/src/cli/main.ts", import.meta.url));
const END_MAX_MS = 60_000;

export class GatewayProcess {
  readonly url: string;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, url: string) {
    this.#child = child;
    this.url = url;
  }

  static async start(home: string, config: string, name: string): Promise<GatewayProcess> {
    const argv = ["--conditions=sandlot-source", MAIN, "serve", "--config", config, "--port", "0", "--json"];
    const env = { ...process.env, SANDLOT_HOME: home, NODE_COMPILE_CACHE: join(home, "compiled") };
    const child = spawn(process.execPath, argv, { env, stdio: ["ignore", "pipe", "pipe"] });
    child.stderr.pipe(createWriteStream(join(home, `${name}.log`), { flags: "a" }));
    const ended = once(child, "exit").then(([code]) => {
      throw new Error(`${name} ended with ${code} before it listened; see ${join(home, `${name}.log`)}`);
    });
    ended.catch(() => {});
    const [line] = await Promise.race([once(createInterface({ input: child.stdout }), "line"), ended]);
    return new GatewayProcess(child, (JSON.parse(String(line)) as { listening: string }).listening);
  }

  /** As an operator's restart: it drains. Returns its exit code. */
  async end(): Promise<number | null> {
    if (this.#child.exitCode !== null) return this.#child.exitCode;
    const exited = once(this.#child, "exit");
    this.#child.kill("SIGTERM");
    const late = setTimeout(() => this.#child.kill("SIGKILL"), END_MAX_MS);
    const [code] = await exited;
    clearTimeout(late);
    return code;
  }

  killNow(): void {
    if (this.#child.exitCode === null) this.#child.kill("SIGKILL");
  }
}
