/** A process of the fleet that will be killed: its progress, and its end. See fleet-process.ts. */

import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { Order } from "../fleet-process.ts";
import type { Environment } from "./environment.ts";
import type { KillStage } from "./tally.ts";

const PROGRAM = fileURLToPath(new URL("../fleet-process.ts", import.meta.url));
const OPEN_MS = 60_000;
const REACH_MS = 60_000;
/** The stage that a word begins. */
const BEGINS: Readonly<Record<string, KillStage | "between">> = {
  create: "create",
  bind: "bind",
  lease: "lease",
  wrote: "lease",
  release: "release",
  released: "between",
  stop: "stop",
  stopped: "between",
  refused: "between",
};

/** Calls its listener when a sandbox of a thread was started, and is awaited. */
export interface StartWatch {
  listener: () => void;
  /** Processes that outlived their sandbox. */
  strays(): Promise<readonly string[]>;
  close(): void;
}

export class Target {
  readonly opened: Promise<void>;
  readonly #process: ChildProcess;
  readonly #starts: StartWatch;
  readonly exited: Promise<unknown>;
  #stage: KillStage | "between" = "create";
  #enteredAt = 0;
  #onStage: (stage: KillStage | "between") => void = () => {};
  hasWritten = false;
  /** How long each completed stage took. */
  readonly spans: [KillStage | "between", number][] = [];

  constructor({ config, place }: Environment, starts: StartWatch) {
    this.#starts = starts;
    const env = { ...process.env, NODE_COMPILE_CACHE: `${place}/compiled` };
    this.#process = spawn(process.execPath, ["--conditions=sandlot-source", PROGRAM, JSON.stringify(config)], {
      stdio: ["pipe", "pipe", "inherit"],
      env,
    });
    this.exited = new Promise((resolve) => this.#process.once("close", resolve));
    this.#process.stdin?.on("error", () => {});
    this.opened = new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error("a fleet did not open")), OPEN_MS);
      late.unref();
      this.#process.once("exit", () => reject(new Error("a fleet ended by itself")));
      if (this.#process.stdout === null) return;
      createInterface({ input: this.#process.stdout }).on("line", (word) => {
        if (word === "wrote") this.hasWritten = true;
        if (word === "open") {
          clearTimeout(late);
          resolve();
        }
        const stage = BEGINS[word];
        if (stage !== undefined) this.#enter(stage);
      });
    });
    // A target that is never used is not awaited.
    this.opened.catch(() => {});
  }

  get stage(): KillStage | "between" {
    return this.#stage;
  }

  go(order: Order): void {
    this.#starts.listener = () => {
      if (this.#stage === "create") this.#enter("ready");
    };
    this.#process.stdin?.write(`${JSON.stringify(order)}\n`);
  }

  async reaches(aim: KillStage): Promise<void> {
    const reached = new Promise<void>((resolve) => {
      this.#onStage = (stage) => stage === aim && resolve();
      if (this.#enteredAt > 0 && this.#stage === aim) resolve();
    });
    const timer = new AbortController();
    const late = sleep(REACH_MS, "late", { signal: timer.signal }).catch(() => "on time");
    const ended = this.exited.then(() => "ended");
    const answer = await Promise.race([reached, late, ended]);
    timer.abort();
    if (answer === "late" || answer === "ended") throw new Error(`a fleet ${answer} before it came to ${aim}`);
  }

  async kill(): Promise<void> {
    this.killNow();
    await this.exited;
  }

  killNow(): void {
    this.#starts.listener = () => {};
    this.#process.kill("SIGKILL");
  }

  #enter(stage: KillStage | "between"): void {
    const now = performance.now();
    if (this.#enteredAt > 0 && stage !== this.#stage) this.spans.push([this.#stage, now - this.#enteredAt]);
    if (stage !== this.#stage || this.#enteredAt === 0) this.#enteredAt = now;
    this.#stage = stage;
    this.#onStage(stage);
  }
}
