/** A gateway that is measured: `sandlot serve` from the bundle, as a process of its own. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createWriteStream, readFileSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const LAUNCHER = fileURLToPath(new URL("../../packages/fleet/bin/sandlot.mjs", import.meta.url));
const COUNTING = fileURLToPath(new URL("counting.mjs", import.meta.url));
const END_MS = 60_000;
const EXEC_MS = 120_000;
/** A long silence counts as a hang where this is a step of a suite. */
const PROGRESS_MS = 30_000;
const ATTEMPTS = 5;
const LOG_MAX = 4_000;
const RETRY_MS = 500;

export interface Cost {
  readonly residentBytes: number;
  readonly heapBytes: number;
  readonly processorMs: number;
  readonly requests: Readonly<Record<string, number>>;
}

export interface Created {
  readonly seconds: number;
  readonly done: number;
  /** Each was retried, as clients do. */
  readonly refusals: Readonly<Record<string, number>>;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

export interface CreateOrder {
  readonly prefix: string;
  readonly count: number;
  readonly perSecond: number;
  readonly atOnce: number;
}

export class Gateway {
  readonly #child: ChildProcess;
  readonly #socket: string;
  readonly #url: string;
  readonly #key: string;

  private constructor(child: ChildProcess, socket: string, url: string, key: string) {
    this.#child = child;
    this.#socket = socket;
    this.#url = url;
    this.#key = key;
  }

  static async start(config: object, home: string, apiHost: string): Promise<Gateway> {
    const [file, socket] = [join(home, "config.json"), join(home, "cost.sock")];
    writeFileSync(file, JSON.stringify(config));
    const argv = ["--import", COUNTING, LAUNCHER, "serve", "--config", file, "--port", "0", "--json"];
    const env = { ...process.env, SANDLOT_HOME: home, SCALE_SOCKET: socket, SCALE_API_HOST: apiHost };
    const child = spawn(process.execPath, argv, { env, stdio: ["ignore", "pipe", "pipe"] });
    child.stderr.pipe(createWriteStream(join(home, "log")));
    let printed = "";
    child.stdout.on("data", (data: Buffer) => {
      printed = `${printed}${data.toString()}`.slice(-LOG_MAX);
    });
    const ended = once(child, "close").then(() => {
      throw new Error(`a gateway ended before it listened: ${printed}${readFileSync(join(home, "log"), "utf8")}`);
    });
    ended.catch(() => {});
    const lines = createInterface({ input: child.stdout });
    const listens = new Promise<string>((resolve) =>
      lines.on("line", (text) => /"listening"/.test(text) && resolve(text)),
    );
    const line = await Promise.race([listens, ended]);
    const { listening } = JSON.parse(line) as { readonly listening: string };
    return new Gateway(child, socket, listening, readFileSync(join(home, "operator.key"), "utf8").trim());
  }

  cost(): Promise<Cost> {
    return new Promise((resolve, reject) => {
      const asked = request({ socketPath: this.#socket, path: "/" }, (response) => {
        let text = "";
        response.on("data", (data) => (text = text.concat(data))).on("end", () => resolve(JSON.parse(text)));
      });
      asked.on("error", reject).end();
    });
  }

  /** Compares the store with the cluster: a consistent list of the engine. */
  async audit(): Promise<number> {
    const { findings } = await this.#ask<{ readonly findings: readonly unknown[] | null }>("GET", "/v1/audit");
    if (findings === null) throw new Error("the gateway has no audit of the fleet");
    return findings.length;
  }

  async listed(): Promise<number> {
    const { sandboxes } = await this.#ask<{ readonly sandboxes: readonly unknown[] }>("GET", "/v1/sandboxes");
    return sandboxes.length;
  }

  /** New threads, each with a first command. Their sandboxes stay, parked. */
  async create({ prefix, count, perSecond, atOnce }: CreateOrder): Promise<Created> {
    const refusals = new Map<string, number>();
    const took: number[] = [];
    const startedAt = performance.now();
    const progress = setInterval(() => console.log(`  ${took.length} of ${count} with ${prefix}`), PROGRESS_MS);
    let next = 0;
    const work = async () => {
      while (next < count) {
        const index = next++;
        await sleep(Math.max(0, startedAt + (index * 1_000) / perSecond - performance.now()));
        const begunAt = performance.now();
        for (let attempt = 1; attempt <= ATTEMPTS; attempt += 1) {
          try {
            await this.#ask("POST", `/v1/threads/${prefix}${index}/exec`, { command: "true" });
            took.push(performance.now() - begunAt);
            break;
          } catch (error) {
            const code = error instanceof Error ? error.message : String(error);
            refusals.set(code, (refusals.get(code) ?? 0) + 1);
            await sleep(RETRY_MS);
          }
        }
      }
    };
    await Promise.all(Array.from({ length: atOnce }, work));
    clearInterval(progress);
    const sorted = took.toSorted((a, b) => a - b);
    const at = (share: number) => Math.round(sorted[Math.floor((sorted.length - 1) * share)] ?? 0);
    const seconds = (performance.now() - startedAt) / 1_000;
    return { seconds, done: took.length, refusals: Object.fromEntries(refusals), p50Ms: at(0.5), p99Ms: at(0.99) };
  }

  async end(): Promise<void> {
    if (this.#child.exitCode !== null) return;
    const ended = once(this.#child, "exit");
    this.#child.kill("SIGTERM");
    const late = setTimeout(() => this.#child.kill("SIGKILL"), END_MS);
    await ended;
    clearTimeout(late);
  }

  async #ask<T>(method: string, path: string, body?: object): Promise<T> {
    const response = await fetch(`${this.#url}${path}`, {
      method,
      headers: { authorization: `Bearer ${this.#key}`, ...(body && { "content-type": "application/json" }) },
      ...(body && { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(EXEC_MS),
    });
    const answer = (await response.json()) as { readonly error?: { readonly code?: string }; readonly code?: string };
    if (response.ok) return answer as T;
    throw new Error(answer.error?.code ?? answer.code ?? String(response.status));
  }
}
