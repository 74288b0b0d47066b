/**
 * Finds the run of a backend call. Tools call a backend without saying for whom; the middleware provides the run
 * through the asynchronous context, for its agent and for the sub-agents that it starts.
 *
 * Invariants
 * - With the middleware, an invocation is one run, and so is each sub-agent: its lease is released when the agent has
 *   ended, failed or was aborted.
 * - Without it, there is one run for each thread, whose lease is released after a short while without a call.
 */

import { AsyncLocalStorage } from "node:async_hooks";
import { AsyncLocalStorageProviderSingleton } from "@langchain/core/singletons";
import { SandlotError } from "@sandlot/contract";
import { createMiddleware } from "langchain";
import { z } from "zod";
import { type RunOptions, SandboxRun } from "../tools/run.ts";
import type { SandboxSource } from "../tools/source.ts";

export interface BackendRunsOptions extends Omit<RunOptions, "thread" | "user" | "signal"> {
  /** For calls from no graph, or from one without `configurable.thread_id`. */
  readonly thread?: string;
  /** Default: `configurable.user_id`, if it is a string. */
  readonly user?: string;
}

/** Nothing reports the end of such a run. */
const UNANNOUNCED_IDLE_RELEASE_MS = 30_000;

/** The tool with which deepagents starts a sub-agent; all its calls run inside. */
const SUB_AGENT_TOOL = "task";

const stateSchema = z.object({ _sandlotRun: z.string().optional() });

export class BackendRuns {
  readonly #source: SandboxSource;
  readonly #options: BackendRunsOptions;
  readonly #context = new AsyncLocalStorage<string>();
  readonly #runs = new Map<string, SandboxRun>();

  constructor(source: SandboxSource, options: BackendRunsOptions) {
    this.#source = source;
    this.#options = options;
  }

  /** The run of the present call. */
  current(): SandboxRun {
    const announced = this.#context.getStore();
    const { thread, user } = this.#identity();
    const key = announced ?? JSON.stringify([user ?? null, thread]);
    const known = this.#runs.get(key);
    if (known !== undefined) return known;
    const idle = announced === undefined ? { idleReleaseMs: UNANNOUNCED_IDLE_RELEASE_MS } : {};
    const run = new SandboxRun(this.#source, {
      purpose: "deepagents",
      ...idle,
      ...this.#options,
      thread,
      ...(user === undefined ? {} : { user }),
    });
    this.#runs.set(key, run);
    run.ending.addEventListener("abort", () => this.#runs.delete(key), { once: true });
    return run;
  }

  async endAll(): Promise<void> {
    await Promise.all([...this.#runs.values()].map((run) => run.end()));
  }

  middleware() {
    return createMiddleware({
      name: "sandlotBackend",
      stateSchema,
      beforeAgent: () => ({ _sandlotRun: crypto.randomUUID() }),
      wrapModelCall: (request, handler) =>
        this.#step(request.state._sandlotRun, request.runtime.signal, () => handler(request)),
      wrapToolCall: (request, handler) => {
        const { _sandlotRun: id } = request.state as z.infer<typeof stateSchema>;
        const { signal } = request.runtime;
        const call = async () => handler(request);
        return request.toolCall.name === SUB_AGENT_TOOL ? this.#subAgent(signal, call) : this.#step(id, signal, call);
      },
      afterAgent: async ({ _sandlotRun: id = "" }) => {
        await this.#runs.get(id)?.end();
      },
    });
  }

  /** A sub-agent is a separate execution: it has its own lease, released when it has answered. */
  async #subAgent<T>(signal: AbortSignal | undefined, call: () => Promise<T>): Promise<T> {
    const id = crypto.randomUUID();
    try {
      return await this.#step(id, signal, call);
    } finally {
      await this.#runs.get(id)?.end();
    }
  }

  async #step<T>(id = "", signal: AbortSignal | undefined, action: () => T | Promise<T>): Promise<T> {
    const abort = () => void this.#runs.get(id)?.end();
    signal?.addEventListener("abort", abort, { once: true });
    try {
      return await this.#context.run(id, action);
    } catch (error) {
      await this.#runs.get(id)?.releaseWhenUnused();
      throw error;
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  #identity(): { readonly thread: string; readonly user: string | undefined } {
    const config: unknown = AsyncLocalStorageProviderSingleton.getRunnableConfig();
    const { configurable = {} } = (config ?? {}) as { configurable?: Record<string, unknown> };
    const thread = text(configurable.thread_id) ?? this.#options.thread;
    if (thread !== undefined) return { thread, user: text(configurable.user_id) ?? this.#options.user };
    const problem = "the invocation has no configurable.thread_id, so there is no conversation to find a sandbox for";
    throw new SandlotError("invalid_request", { field: "configurable.thread_id", problem });
  }
}

function text(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}
