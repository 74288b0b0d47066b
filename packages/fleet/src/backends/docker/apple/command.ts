/**
 * Running Apple's `container` program: one process per request, with the program's own message when it refuses.
 *
 * Invariant: a program that is missing, that does not end in time, or whose services do not run has not responded
 * (`engine_unavailable`). Every other failure is a refusal.
 */

import { type ChildProcess, execFile } from "node:child_process";
import { within } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";
import { EngineRefusal, unavailable } from "../engine/trouble.ts";

export interface Said {
  readonly stdout: string;
  readonly stderr: string;
}

/** The output for hundreds of containers with all their settings. */
const OUTPUT_MAX_BYTES = 64 * 1024 * 1024;
/** The service behind every command does not run. */
const NO_SERVICE = /XPC connection error|container system start|apiserver is not running/i;
const STATUSES: readonly (readonly [RegExp, number])[] = [
  [/not\s?found/i, 404],
  [/already\s?exists/i, 409],
];

export class ContainerCommand {
  readonly #program: string;
  readonly #world: World;

  constructor(program: string, world: World) {
    this.#program = program;
    this.#world = world;
  }

  get program(): string {
    return this.#program;
  }

  /** Rejects with `engine_unavailable` or an `EngineRefusal`. The deadline ends the process. */
  async run(args: readonly string[], ms: number): Promise<Said> {
    const late = () => unavailable(`container ${args[0] ?? ""}: no answer within ${ms} ms`, [this.#program]);
    return within(this.#world, ms, undefined, late, (signal) => this.#spawn(args, signal));
  }

  /** Without a deadline; the signal ends it. */
  async runUntil(args: readonly string[], signal: AbortSignal): Promise<Said> {
    return this.#spawn(args, signal);
  }

  #spawn(args: readonly string[], signal: AbortSignal): Promise<Said> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason);
      const options = { encoding: "utf8", maxBuffer: OUTPUT_MAX_BYTES } as const;
      const child: ChildProcess = execFile(this.#program, [...args], options, (error, stdout, stderr) => {
        signal.removeEventListener("abort", end);
        if (error === null) resolve({ stdout, stderr });
        else reject(signal.aborted ? signal.reason : this.#trouble(error, stderr));
      });
      const end = () => void child.kill("SIGTERM");
      signal.addEventListener("abort", end, { once: true });
      child.stdin?.end();
    });
  }

  #trouble(error: Error & { readonly code?: unknown }, stderr: string): Error {
    if (error.code === "ENOENT") return unavailable("there is no such program", [this.#program], error);
    if (error.code === "EACCES") return unavailable("this account may not run it", [this.#program], error);
    const said = stderr.trim().replace(/^Error: /, "") || error.message;
    if (NO_SERVICE.test(said)) return unavailable(said, [this.#program], error);
    const status = STATUSES.find(([pattern]) => pattern.test(said))?.[1] ?? 500;
    return new EngineRefusal(status, said, { cause: error });
  }
}
