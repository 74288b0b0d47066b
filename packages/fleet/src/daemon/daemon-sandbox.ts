/**
 * A sandbox through its daemon: the narrow view that tool code gets, and beside it what the fleet needs.
 *
 * Invariants
 * - Every failure is an error of the contract. A broken connection is `sandbox_lost` when the held one broke too and the
 *   daemon was on this machine; otherwise it is `sandbox_unreachable`, because a network may have ended instead.
 * - An attachment whose held connection has ended stays ended: there is a new one for whoever still wants the sandbox.
 * - Aborting an exec ends it inside, and the caller hears of it at once.
 */

import {
  type DaemonActivity,
  type ExecOptions,
  type ExecResult,
  execResultSchema,
  type FollowUntil,
  type Generation,
  type ListeningPort,
  type ProcessInfo,
  type ResourceUsage,
  type Sandbox,
  type SandboxId,
  SandlotError,
  type SpawnReply,
  type WaitForOutputReply,
} from "@sandlot/contract";
import type { z } from "zod";
import type { World } from "../world/world.ts";
import { DaemonFiles } from "./daemon-files.ts";
import { type FollowEvent, type Offsets, readFrames } from "./frames.ts";
import type { Hold } from "./hold.ts";
import * as replies from "./replies.ts";
import { ConnectionLost, type Wire } from "./wire.ts";

export interface FollowOptions {
  /** Where to go on; default the beginning. */
  readonly from?: Partial<Offsets>;
  readonly until?: FollowUntil;
  readonly signal?: AbortSignal;
}

export interface WaitOptions {
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

/** After a broken request, how long the held connection may take to show that the daemon is gone. */
const DEATH_SHOWS_MS = 200;
const RETRY_AFTER_MS = 500;
/** A follower connects again this often in a row without getting anything. */
const FOLLOW_RETRIES_MAX = 3;

export class DaemonSandbox implements Sandbox {
  readonly id: SandboxId;
  readonly generation: Generation;
  readonly files: DaemonFiles;
  readonly #wire: Wire;
  readonly #hold: Hold;
  readonly #world: World;

  constructor(wire: Wire, hold: Hold, world: World) {
    this.id = wire.target.sandboxId as SandboxId;
    this.generation = wire.target.generation as Generation;
    this.#wire = wire;
    this.#hold = hold;
    this.#world = world;
    this.files = new DaemonFiles((work) => this.#attempt(() => work(wire)));
  }

  exec(command: string | readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    return this.#execCall("/sandlot/exec", execResultSchema, command, options);
  }

  /** Starts a command and comes back. Follow it, wait for its output, or kill it by its id. */
  spawn(command: string | readonly string[], options: ExecOptions = {}): Promise<SpawnReply> {
    return this.#execCall("/sandlot/spawn", replies.spawnReplySchema, command, options);
  }

  /** Ends an exec and everything it started. `false`: there was none of that id. */
  async kill(execId: string): Promise<boolean> {
    const reply = await this.#attempt(() => this.#wire.post(replies.killReplySchema, "/sandlot/exec/kill", { execId }));
    return reply.found;
  }

  /** Output from the given offsets on, then the end. Connects again where a connection breaks, and repeats nothing. */
  async *follow(execId: string, options: FollowOptions = {}): AsyncGenerator<FollowEvent> {
    const offsets: Offsets = { stdout: options.from?.stdout ?? 0, stderr: options.from?.stderr ?? 0 };
    for (let failures = 0; ; ) {
      try {
        for await (const event of this.#followOnce(execId, offsets, options)) {
          failures = 0;
          yield event;
          if (event.type === "end") return;
        }
        throw new ConnectionLost("the output was cut off");
      } catch (error) {
        options.signal?.throwIfAborted();
        const known = await this.#known(error);
        if (known.code !== "sandbox_unreachable" || ++failures > FOLLOW_RETRIES_MAX) throw known;
      }
    }
  }

  async waitForPort(port: number, { timeoutMs, signal }: WaitOptions): Promise<void> {
    const fields = { port, timeoutMs };
    await this.#attempt(() => this.#wire.post(replies.nothingSchema, "/sandlot/wait/port", fields, signal), signal);
  }

  waitForOutput(
    execId: string,
    pattern: string,
    { timeoutMs, literal, signal }: WaitOptions & { readonly literal?: boolean },
  ): Promise<WaitForOutputReply> {
    const fields = { execId, pattern, literal, timeoutMs };
    const schema = replies.waitForOutputReplySchema;
    return this.#attempt(() => this.#wire.post(schema, "/sandlot/wait/output", fields, signal), signal);
  }

  activity(signal?: AbortSignal): Promise<DaemonActivity> {
    return this.#get(replies.activitySchema, "/sandlot/activity", signal);
  }

  processes(): Promise<readonly ProcessInfo[]> {
    return this.#get(replies.processesSchema, "/sandlot/processes");
  }

  ports(): Promise<readonly ListeningPort[]> {
    return this.#get(replies.portsSchema, "/sandlot/ports");
  }

  usage(): Promise<ResourceUsage> {
    return this.#get(replies.usageSchema, "/sandlot/usage");
  }

  async #execCall<T>(
    path: string,
    schema: z.ZodType<T>,
    command: string | readonly string[],
    { execId, stdin, signal, cwd, env, timeoutMs }: ExecOptions,
  ): Promise<T> {
    signal?.throwIfAborted();
    const id = execId ?? this.#world.randomHex(12);
    const call = { execId: id, repeatable: execId !== undefined, command, cwd, env, timeoutMs };
    const body = encodeCall({ ...call, hasStdin: stdin !== undefined }, stdin);
    const onAbort = () => void this.kill(id).catch(() => {});
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      const options = signal === undefined ? {} : { signal };
      const work = () => this.#wire.ask(schema, { method: "POST", path, body, ...options });
      return await this.#attempt(work, signal);
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }

  async *#followOnce(execId: string, offsets: Offsets, { until, signal }: FollowOptions): AsyncGenerator<FollowEvent> {
    const query = { execId, stdout: offsets.stdout, stderr: offsets.stderr, until: until ?? "exit" };
    const call = { method: "GET", path: "/sandlot/exec/follow", query, ...(signal && { signal }) } as const;
    const response = await this.#wire.open(call);
    try {
      yield* readFrames(response, offsets);
    } finally {
      response.destroy();
    }
  }

  #get<T>(schema: z.ZodType<T>, path: string, signal?: AbortSignal): Promise<T> {
    const work = () => this.#wire.ask(schema, { method: "GET", path, ...(signal && { signal }) });
    return this.#attempt(work, signal);
  }

  async #attempt<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    if (this.#hold.ended() !== "no") throw await this.#whyEnded();
    try {
      return await work();
    } catch (error) {
      signal?.throwIfAborted();
      throw await this.#known(error);
    }
  }

  async #known(error: unknown): Promise<SandlotError> {
    if (error instanceof SandlotError) return error;
    const isBroken = error instanceof ConnectionLost || (error as { code?: unknown }).code === "ECONNRESET";
    if (!isBroken) return new SandlotError("internal", { problem: String(error) }, { cause: error });
    await this.#deathShows();
    return this.#hold.ended() === "no" ? this.#unreachable((error as Error).message) : this.#whyEnded();
  }

  async #deathShows(): Promise<void> {
    let late = () => {};
    const timer = this.#world.timer(DEATH_SHOWS_MS, () => late());
    await Promise.race([this.#hold.closed, new Promise<void>((resolve) => (late = resolve))]);
    timer.cancel();
  }

  /** The held connection has ended: by us, by a rebind to another generation, by a death, or by the network. */
  async #whyEnded(): Promise<SandlotError> {
    const { sandboxId, generation, address } = this.#wire.target;
    if (this.#hold.ended() === "here") return this.#unreachable("the attachment was closed");
    try {
      await this.#wire.post(replies.nothingSchema, "/sandlot/renew", {});
    } catch (error) {
      if (error instanceof SandlotError) return error;
      // On one machine nothing but its end keeps a daemon from answering.
      if ("path" in address) return new SandlotError("sandbox_lost", { sandboxId, generation, reason: "crashed" });
    }
    return this.#unreachable("the connection has ended");
  }

  #unreachable(problem: string): SandlotError {
    return new SandlotError("sandbox_unreachable", { sandboxId: this.id, problem, retryAfterMs: RETRY_AFTER_MS });
  }
}

/** A JSON line, then the bytes of stdin. */
function encodeCall(call: object, stdin: string | Uint8Array | undefined): Buffer {
  const line = Buffer.from(`${JSON.stringify(call)}\n`);
  return stdin === undefined ? line : Buffer.concat([line, Buffer.from(stdin as string)]);
}
