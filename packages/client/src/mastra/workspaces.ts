/**
 * Sandboxes for a Mastra workspace that serves many threads. Mastra requests a sandbox with the request's context,
 * which has the thread and the resource (the user) of the request.
 *
 * Mastra does not report the end of a request. The lease is released by `end(requestContext)`, or a short while after
 * the last use.
 */

import type { WorkspaceFilesystem, WorkspaceSandbox } from "@mastra/core/workspace";
import { SandlotError } from "@sandlot/contract";
import type { RunOptions } from "../tools/run.ts";
import type { SandboxSource } from "../tools/source.ts";
import { SandlotWorkspaceSandbox } from "./sandbox.ts";

/** Mastra's own keys, which only the server may set. */
const THREAD_KEY = "mastra__threadId";
const RESOURCE_KEY = "mastra__resourceId";
const IDLE_RELEASE_MS = 30_000;

interface Context {
  get(key: string): unknown;
}

export interface SandlotWorkspacesOptions extends Omit<RunOptions, "thread" | "user" | "signal"> {
  /** Default: the thread in Mastra's request context. */
  readonly thread?: (requestContext: Context) => string | undefined;
  /** Default: the resource in Mastra's request context. */
  readonly user?: (requestContext: Context) => string | undefined;
}

export interface SandlotWorkspaces {
  readonly sandbox: (context: { readonly requestContext: Context }) => WorkspaceSandbox;
  readonly filesystem: (context: { readonly requestContext: Context }) => WorkspaceFilesystem;
  /** The request is over: releases its lease at once. */
  end(requestContext: Context): Promise<void>;
}

export function sandlotWorkspaces(source: SandboxSource, options: SandlotWorkspacesOptions = {}): SandlotWorkspaces {
  const { thread = keyed(THREAD_KEY), user = keyed(RESOURCE_KEY), ...rest } = options;
  const sandboxes = new WeakMap<Context, SandlotWorkspaceSandbox>();
  const sandboxOf = (context: Context): SandlotWorkspaceSandbox => {
    const known = sandboxes.get(context);
    if (known?.isReady()) return known;
    const threadId = thread(context);
    const userId = user(context);
    if (threadId === undefined) {
      const problem = "the request context names no thread, so there is no conversation to find a sandbox for";
      throw new SandlotError("invalid_request", { field: THREAD_KEY, problem });
    }
    const named = { thread: threadId, ...(userId === undefined ? {} : { user: userId }) };
    const sandbox = new SandlotWorkspaceSandbox(source, { idleReleaseMs: IDLE_RELEASE_MS, ...rest, ...named });
    sandboxes.set(context, sandbox);
    return sandbox;
  };
  return {
    sandbox: ({ requestContext }) => sandboxOf(requestContext),
    filesystem: ({ requestContext }) => sandboxOf(requestContext).filesystem,
    async end(requestContext) {
      await sandboxes.get(requestContext)?.destroy();
    },
  };
}

function keyed(key: string) {
  return (context: Context): string | undefined => {
    const value = context.get(key);
    return typeof value === "string" && value !== "" ? value : undefined;
  };
}
