/**
 * Sandboxes for the OpenAI Agents SDK: creates sessions, and finds them again from the state of a paused run. The state
 * holds only user and thread; the thread leads to the sandbox.
 */

import {
  Manifest,
  normalizeSandboxClientCreateArgs,
  type SandboxClient,
  type SandboxClientCreateArgs,
  type SandboxClientResumeOptions,
  type SandboxSessionState,
} from "@openai/agents/sandbox";
import { DEFAULT_CWD, SandlotError } from "@sandlot/contract";
import { z } from "zod";
import { type RunOptions, SandboxRun } from "../tools/run.ts";
import type { SandboxSource } from "../tools/source.ts";
import { checkManifest } from "./manifest-files.ts";
import { SandlotSandboxSession } from "./session.ts";

export interface SandlotClientOptions extends Record<string, unknown> {
  readonly thread?: string;
  readonly user?: string;
  /** The run's own signal. The SDK does not pass it on, and waits for a running command. */
  readonly signal?: AbortSignal;
}

export interface SandlotSessionState extends SandboxSessionState {
  readonly thread: string;
  readonly user: string | null;
}

const keptSchema = z.object({ thread: z.string(), user: z.string().nullable() });

export class SandlotSandboxClient implements SandboxClient<SandlotClientOptions, SandlotSessionState> {
  readonly backendId = "sandlot";
  readonly supportsDefaultOptions = true;
  readonly #source: SandboxSource;
  readonly #options: Partial<RunOptions>;

  /** `options.thread` and `options.user` are for runs without their own. */
  constructor(source: SandboxSource, options: Partial<RunOptions> = {}) {
    this.#source = source;
    this.#options = options;
  }

  async create(
    args?: SandboxClientCreateArgs<SandlotClientOptions> | Manifest,
    manifestOptions?: SandlotClientOptions,
  ): Promise<SandlotSandboxSession> {
    const { manifest, snapshot, options = {} } = normalizeSandboxClientCreateArgs(args, manifestOptions);
    checkManifest(manifest);
    // Another type is the SDK's own default, which requests nothing.
    if (snapshot?.type === "remote") {
      const problem = "a thread's files are kept by the fleet, so nothing is restored from elsewhere; leave it out";
      throw new SandlotError("invalid_request", { field: "sandbox.snapshot", problem });
    }
    const thread = options.thread ?? this.#options.thread;
    if (thread === undefined) {
      const problem = "no thread is named, so there is no conversation to find a sandbox for";
      throw new SandlotError("invalid_request", { field: "sandbox.options.thread", problem });
    }
    const user = options.user ?? this.#options.user ?? null;
    return this.#session({ manifest: rooted(manifest), thread, user }, options.signal);
  }

  async serializeSessionState({ thread, user }: SandlotSessionState): Promise<Record<string, unknown>> {
    return { thread, user };
  }

  async deserializeSessionState(kept: Record<string, unknown>): Promise<SandlotSessionState> {
    // The initial files of the workspace still exist.
    return { ...keptSchema.parse(kept), manifest: rooted(new Manifest()), workspaceReady: true };
  }

  async resume(
    state: SandlotSessionState,
    options?: SandboxClientResumeOptions<SandlotClientOptions>,
  ): Promise<SandlotSandboxSession> {
    return this.#session({ ...state, manifest: rooted(state.manifest) }, options?.clientOptions?.signal);
  }

  #session(state: SandlotSessionState, signal: AbortSignal | undefined): SandlotSandboxSession {
    const { thread, user } = state;
    const named = { thread, ...(user === null ? {} : { user }), ...(signal === undefined ? {} : { signal }) };
    const run = new SandboxRun(this.#source, { purpose: "openai-agents", ...this.#options, ...named });
    return new SandlotSandboxSession(run, state);
  }
}

/** The SDK describes the workspace's path to the model; ours is always the same. */
function rooted({ entries, environment }: Manifest): Manifest {
  return new Manifest({ root: DEFAULT_CWD, entries, environment });
}
