/** A gateway as a process of its own: `sandlot serve`, on any free port, and the stream of its events. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const MAIN = fileURLToPath(new URL("../../../packages/fleet/src/cli/main.ts", import.meta.url));
/** Starting takes two seconds on an idle machine. */
const START_MS = 90_000;
/** Sandboxes stay; draining ends when no request runs. */
const STOP_MS = 30_000;

export interface GatewayOptions {
  readonly home: string;
  readonly config: string;
  readonly environment: Readonly<Record<string, string>>;
}

export interface SeenEvent {
  readonly type: string;
  /** On this process's monotonic clock. */
  readonly at: number;
}

export class GatewayProcess {
  readonly url: string;
  readonly events: SeenEvent[] = [];
  readonly #child: ChildProcess;
  readonly #home: string;
  readonly #listening = new AbortController();

  private constructor(child: ChildProcess, url: string, home: string) {
    this.#child = child;
    this.url = url;
    this.#home = home;
    void this.#listen();
  }

  static async start({ home, config, environment }: GatewayOptions): Promise<GatewayProcess> {
    const { SANDLOT_CONFIG: _, SANDLOT_URL: __, ...inherited } = process.env;
    const child = spawn(process.execPath, [...COMMAND, "-c", config], {
      env: { ...inherited, NO_COLOR: "1", ...environment, SANDLOT_HOME: home },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let printed = "";
    child.stderr?.on("data", (bytes: Buffer) => {
      printed = `${printed}${bytes.toString()}`.slice(-4_000);
    });
    const failed = once(child, "exit").then(([code]) => {
      throw new Error(`the gateway ended with ${String(code)}: ${printed}`);
    });
    const late = new Promise<never>((_resolve, reject) => {
      setTimeout(() => reject(new Error(`the gateway did not start: ${printed}`)), START_MS).unref();
    });
    const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream });
    // A gateway that cannot start prints an error of several lines, and ends.
    const first = new Promise<string>((resolve) => {
      lines.on("line", (line) => {
        const listening = /^\{"listening":"([^"]+)"/.exec(line)?.[1];
        if (listening === undefined) printed = `${printed}${line}\n`.slice(-4_000);
        else resolve(listening);
      });
    });
    const url = await Promise.race([first, failed, late]);
    failed.catch(() => undefined);
    return new GatewayProcess(child, url, home);
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  get key(): string {
    return readFileSync(join(this.#home, "operator.key"), "utf8").trim();
  }

  signal(name: NodeJS.Signals): void {
    this.#child.kill(name);
  }

  /** Ends it, gently first. */
  async end(name: NodeJS.Signals = "SIGTERM"): Promise<void> {
    this.#listening.abort();
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = once(this.#child, "exit");
    this.#child.kill(name);
    const force = setTimeout(() => this.#child.kill("SIGKILL"), STOP_MS);
    await ended;
    clearTimeout(force);
  }

  /** Follows the events of its own instance. A stream that breaks off ends the list, which is no failure here. */
  async #listen(): Promise<void> {
    try {
      const headers = { authorization: `Bearer ${this.key}`, accept: "text/event-stream" };
      const response = await fetch(`${this.url}/v1/events`, { headers, signal: this.#listening.signal });
      const decoder = new TextDecoder();
      let text = "";
      for await (const chunk of response.body ?? []) {
        text += decoder.decode(chunk as Uint8Array, { stream: true });
        const lines = text.split("\n");
        text = lines.pop() ?? "";
        for (const line of lines) this.#note(line);
      }
    } catch {
      // The gateway was killed, or stopped.
    }
  }

  #note(line: string): void {
    const [, type] = /^data: .*"type":"([a-z-]+)"/.exec(line) ?? [];
    if (type !== undefined) this.events.push({ type, at: performance.now() });
  }
}

const COMMAND = ["--conditions=sandlot-source", MAIN, "serve", "--port", "0", "--json", "--log-level", "silent"];
