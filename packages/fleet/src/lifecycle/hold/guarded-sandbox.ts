/**
 * A sandbox whose every use passes a gate. The gate decides whether the holder may still use the sandbox.
 *
 * The table in `backend/sandbox-shape.ts` defines the methods, once for all guarded sandboxes, so a new method of
 * `Sandbox` needs no edit here. A part is built on first use, because each lease has its own sandbox object.
 */

import { inspect } from "node:util";
import {
  type ExecOptions,
  type ExecResult,
  type Generation,
  type Sandbox,
  type SandboxFiles,
  type SandboxId,
  type Terminal,
  withWorkspacePaths,
} from "@sandlot/contract";
import { isLive, liveExec } from "@sandlot/contract/live-exec";
import { type AnyShape, callMethod, memberOf, SANDBOX_SHAPE } from "../../backend/sandbox-shape.ts";
import { tracedExec } from "../../observe/traced.ts";
import { isTracing } from "../../observe/tracing.ts";

export interface Gate {
  /** Runs one use on the present sandbox. */
  use<T>(use: (sandbox: Sandbox) => Promise<T>): Promise<T>;
  /** Forwards a stream, and checks again before each piece. */
  stream<T>(open: (sandbox: Sandbox) => AsyncIterable<T>): AsyncIterable<T>;
  /** Throws when the holder may no longer use the sandbox. */
  check(): void;
}

export function guarded(id: SandboxId, generation: Generation, gate: Gate): Sandbox {
  return new GuardedSandbox(id, generation, gate);
}

type Call<Answer> = (sandbox: Sandbox) => Answer;

/** How each kind of method passes a gate. */
const WAYS = {
  promise: (gate: Gate, call: Call<unknown>) => gate.use(call as Call<Promise<unknown>>),
  stream: (gate: Gate, call: Call<unknown>) => gate.stream(call as Call<AsyncIterable<unknown>>),
  terminal: (gate: Gate, call: Call<unknown>) => guardedTerminal(gate, call as Call<Promise<Terminal>>),
};

/** Builds a class with the methods and parts of a shape. `find` gets the object in a sandbox to call the methods on. */
function guardedClass(shape: AnyShape, find: Call<object>): new (gate: Gate) => object {
  class Guarded {
    readonly #gate: Gate;

    constructor(gate: Gate) {
      this.#gate = gate;
    }

    static {
      for (const [name, kind] of Object.entries(shape)) {
        if (kind === "value") continue;
        const member = typeof kind === "object" ? Guarded.#part(name, kind) : Guarded.#method(name, WAYS[kind]);
        Object.defineProperty(Guarded.prototype, name, { ...member, configurable: true });
      }
    }

    static #part(name: string, shape: AnyShape): PropertyDescriptor {
      const Part = guardedClass(shape, (sandbox) => memberOf(find(sandbox), name) as object);
      return {
        get(this: Guarded) {
          const part = new Part(this.#gate);
          const value = name === "files" ? withWorkspacePaths(part as SandboxFiles) : part;
          Object.defineProperty(this, name, { value });
          return value;
        },
      };
    }

    static #method(name: string, way: (typeof WAYS)[keyof typeof WAYS]): PropertyDescriptor {
      // Stack traces show the method's own name.
      const named = {
        [name](this: Guarded, ...input: readonly unknown[]) {
          return way(this.#gate, (sandbox) => callMethod(find(sandbox), name, input));
        },
      };
      return { value: memberOf(named, name) };
    }
  }
  return Guarded;
}

async function guardedTerminal(gate: Gate, open: Call<Promise<Terminal>>): Promise<Terminal> {
  const terminal = await gate.use(open);
  return {
    terminalId: terminal.terminalId,
    output: gate.stream(() => terminal.output),
    ended: terminal.ended,
    write: (content) => {
      gate.check();
      terminal.write(content);
    },
    resize: (columns, rows) => {
      gate.check();
      terminal.resize(columns, rows);
    },
    detach: () => terminal.detach(),
  };
}

const GuardedMembers = guardedClass(SANDBOX_SHAPE, (sandbox) => sandbox) as new (gate: Gate) => Sandbox;

class GuardedSandbox extends GuardedMembers {
  override readonly id: SandboxId;
  override readonly generation: Generation;

  constructor(id: SandboxId, generation: Generation, gate: Gate) {
    super(gate);
    this.id = id;
    this.generation = generation;
  }

  /** The `console.log` output: what the object is, without its connection. */
  [inspect.custom](): string {
    return `Sandbox { id: '${this.id}', generation: ${this.generation} }`;
  }

  override exec(command: string | readonly string[], options?: ExecOptions): Promise<ExecResult> {
    return isTracing() ? tracedExec(this, () => this.#exec(command, options)) : this.#exec(command, options);
  }

  #exec(command: string | readonly string[], options?: ExecOptions): Promise<ExecResult> {
    return isLive(options) ? liveExec(this, command, options) : super.exec(command, options);
  }
}
