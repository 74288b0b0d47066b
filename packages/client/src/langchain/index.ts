/**
 * `@sandlot/client/langchain`: a sandbox for agents of LangChain.js.
 *
 *   const agent = createAgent({ model, tools: [], middleware: [sandlotMiddleware(fleet)], checkpointer });
 *   await agent.invoke({ messages }, { configurable: { thread_id: "t1" } });
 *
 * The thread is LangChain's own (`configurable.thread_id`). Each invocation of an agent, sub-agents included, is one
 * run with one lease and one shell.
 *
 * Invariants
 * - The lease is released when the agent has finished, when the model or a tool throws, and when the invocation is
 *   aborted. LangChain calls no hook for the last; each step listens to its signal.
 * - The agent's state names the run of a tool call. A run that continues in another process, after an interrupt, is
 *   unknown there and begins anew, in the same thread.
 */

import { ToolMessage } from "@langchain/core/messages";
import { type StructuredToolInterface, type ToolRuntime, tool } from "@langchain/core/tools";
import { SandlotError } from "@sandlot/contract";
import { createMiddleware } from "langchain";
import { z } from "zod";
import { base64Of } from "../tools/base64.ts";
import { sandboxInstructions } from "../tools/instructions.ts";
import type { OutputPiece } from "../tools/live-output.ts";
import type { RunOptions } from "../tools/run.ts";
import type { SandboxSource } from "../tools/source.ts";
import type { ToolOutput } from "../tools/tool.ts";
import { ToolBox, type ToolBoxOptions, type ToolPolicy, toolsNamed } from "../tools/tool-box.ts";

/** LangChain's data about an invocation. */
export interface LangChainInvocation {
  readonly configurable?: Readonly<Record<string, unknown>> | undefined;
  readonly context?: unknown;
  readonly signal?: AbortSignal | undefined;
}

export interface SandlotMiddlewareOptions extends ToolPolicy, Omit<RunOptions, "thread" | "user" | "signal"> {
  /** Default: `configurable.thread_id`. */
  readonly thread?: (invocation: LangChainInvocation) => string;
  /** Default: `configurable.user_id`, if it is a string. */
  readonly user?: (invocation: LangChainInvocation) => string | undefined;
  readonly tools?: readonly string[];
  /** Adds a description of the sandbox to the system prompt. Default `true`. */
  readonly instruct?: boolean;
}

const stateSchema = z.object({ _sandlotRun: z.string().optional() });
type RunState = z.infer<typeof stateSchema>;

/** Tools and lease handling for every agent with this middleware. */
export function sandlotMiddleware(source: SandboxSource, options: SandlotMiddlewareOptions = {}) {
  const runs = new Runs(source, options);
  return createMiddleware({
    name: "sandlot",
    stateSchema,
    tools: toolsFor(options.tools, (runtime) => runs.of(runtime.state as RunState, runtime)),
    beforeAgent: (_state, runtime) => ({ _sandlotRun: runs.begin(runtime) }),
    wrapModelCall: async (request, handler) => {
      const { systemMessage } = request;
      const about = sandboxInstructions(source.about?.(options.blueprint));
      const instructions = systemMessage.text === "" ? about : `\n\n${about}`;
      const instructed = (options.instruct ?? true) ? systemMessage.concat(instructions) : systemMessage;
      const call = () => handler({ ...request, systemMessage: instructed });
      return runs.step(request.state, request.runtime, call);
    },
    wrapToolCall: (request, handler) =>
      runs.step(request.state as RunState, request.runtime, async () => handler(request)),
    afterAgent: (state) => runs.end(state),
  });
}

/** The tools alone, for one run. Dispose them, or `end()` them, when it is over. */
export function sandlotTools(source: SandboxSource, options: ToolBoxOptions): LangChainTools {
  const toolBox = new ToolBox(source, options);
  return {
    tools: toolsFor(options.tools, () => toolBox),
    end: () => toolBox.end(),
    [Symbol.asyncDispose]: () => toolBox.end(),
  };
}

export interface LangChainTools extends AsyncDisposable {
  readonly tools: readonly StructuredToolInterface[];
  end(): Promise<void>;
}

class Runs {
  readonly #source: SandboxSource;
  readonly #options: SandlotMiddlewareOptions;
  readonly #boxes = new Map<string, ToolBox>();

  constructor(source: SandboxSource, options: SandlotMiddlewareOptions) {
    this.#source = source;
    this.#options = options;
  }

  /** An unused run costs nothing; its lease comes with the first tool call. */
  begin(invocation: LangChainInvocation): string {
    const id = crypto.randomUUID();
    this.#open(id, invocation);
    return id;
  }

  of(state: RunState, invocation: LangChainInvocation): ToolBox {
    const id = state._sandlotRun ?? crypto.randomUUID();
    return this.#boxes.get(id) ?? this.#open(id, invocation);
  }

  async end(state: RunState): Promise<void> {
    await this.#boxes.get(state._sandlotRun ?? "")?.end();
  }

  /**
   * One step of the agent. An error may be the end of the run: if it is not, the next call takes a lease again. An
   * abort is the end, and only the interrupted step sees it: LangGraph gives each step its own signal.
   */
  async step<T>(state: RunState, { signal }: LangChainInvocation, action: () => T | Promise<T>): Promise<T> {
    const box = () => this.#boxes.get(state._sandlotRun ?? "");
    const abort = () => void box()?.end();
    signal?.addEventListener("abort", abort, { once: true });
    try {
      return await action();
    } catch (error) {
      await box()?.run.releaseWhenUnused();
      throw error;
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  #open(id: string, invocation: LangChainInvocation): ToolBox {
    const { thread = threadOf, user = userOf, ...rest } = this.#options;
    const userId = user(invocation);
    const box = new ToolBox(this.#source, {
      purpose: "langchain",
      ...rest,
      thread: thread(invocation),
      ...(userId === undefined ? {} : { user: userId }),
    });
    this.#boxes.set(id, box);
    this.#forgetOldest();
    box.run.ending.addEventListener("abort", () => this.#boxes.delete(id), { once: true });
    return box;
  }

  #forgetOldest(): void {
    for (const box of this.#boxes.values()) {
      if (this.#boxes.size <= RUNS_MAX) return;
      if (!box.run.isLeased()) void box.end();
    }
  }
}

/** Failed runs are kept, without a lease, in case they go on. This many cost little. */
const RUNS_MAX = 1_000;

function threadOf({ configurable }: LangChainInvocation): string {
  const id = configurable?.thread_id;
  if (typeof id === "string" && id !== "") return id;
  const problem = "the invocation has no configurable.thread_id, so there is no conversation to find a sandbox for";
  throw new SandlotError("invalid_request", { field: "configurable.thread_id", problem });
}

function userOf({ configurable }: LangChainInvocation): string | undefined {
  const id = configurable?.user_id;
  return typeof id === "string" && id !== "" ? id : undefined;
}

function toolsFor(names: readonly string[] | undefined, boxOf: (runtime: ToolRuntime) => ToolBox) {
  return toolsNamed(names).map(
    ({ name, description, input }) =>
      tool(
        async (args: unknown, runtime: ToolRuntime) => {
          const { signal, toolCallId, writer } = runtime;
          // For `streamMode: "custom"`: a command's output, live.
          const onOutput = writer
            ? (piece: OutputPiece) => writer({ type: "tool_output", tool: name, toolCallId, ...piece })
            : undefined;
          return toolMessage(name, toolCallId, await boxOf(runtime).call(name, args, { signal, onOutput }));
        },
        { name, description, schema: input },
      ) as StructuredToolInterface,
  );
}

function toolMessage(name: string, toolCallId: string, { text, images, isError, facts }: ToolOutput): ToolMessage {
  const pictures = images.map(({ mimeType, bytes }) => ({ type: "image" as const, mimeType, data: base64Of(bytes) }));
  return new ToolMessage({
    name,
    tool_call_id: toolCallId,
    status: isError ? "error" : "success",
    content: pictures.length === 0 ? text : [{ type: "text" as const, text }, ...pictures],
    artifact: facts,
  });
}
