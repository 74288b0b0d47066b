/**
 * Counts the connections that a fleet opens and closes, and lets a test break one or disturb its closing.
 */

import type { Sandbox, SandboxId } from "@sandlot/contract";
import type { Attachment, Backend, Target } from "../../src/backend/backend.ts";

interface Connection {
  readonly sandboxId: SandboxId;
  readonly generation: number;
  readonly end: () => void;
  closed: boolean;
}

export class Attachments {
  readonly #connections: Connection[] = [];
  /** The error of the next commands, as long as it is set. */
  failNext: unknown[] = [];
  /** Replaces closing; may throw, reject or hang. */
  disturbClose: ((close: () => Promise<void>) => Promise<void>) | null = null;

  get openCount(): number {
    return this.#connections.filter(({ closed }) => !closed).length;
  }

  get openedCount(): number {
    return this.#connections.length;
  }

  isOpen(sandboxId: string, generation: number): boolean {
    return this.#connections.some((one) => one.sandboxId === sandboxId && one.generation === generation && !one.closed);
  }

  /** The connections to this sandbox end; the sandbox does not. */
  breakOff(sandboxId: string): void {
    for (const connection of this.#connections) if (connection.sandboxId === sandboxId) connection.end();
  }

  wrap(backend: Backend): Backend {
    return new Proxy(backend, {
      get: (target, name) => {
        if (name === "attach")
          return async (to: Target, signal: AbortSignal) => this.#wrapOne(to, await target.attach(to, signal));
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
  }

  #wrapOne({ sandboxId, generation }: Target, inner: Attachment): Attachment {
    let end: () => void = () => undefined;
    const broken = new Promise<void>((resolve) => {
      end = resolve;
    });
    const connection: Connection = { sandboxId, generation, end, closed: false };
    this.#connections.push(connection);
    const close = () => {
      connection.closed = true;
      return inner.close();
    };
    return {
      sandbox: this.#failing(inner.sandbox),
      closed: Promise.race([inner.closed, broken]),
      close: () => (this.disturbClose === null ? close() : this.disturbClose(close)),
    };
  }

  #failing(sandbox: Sandbox): Sandbox {
    return new Proxy(sandbox, {
      get: (target, name) => {
        if (name === "exec" && this.failNext.length > 0) return () => Promise.reject(this.failNext.shift());
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
  }
}
