/**
 * A client's connection to the engine process: requests out, responses and pushed events in.
 *
 * Invariant: requests leave in order. What a killed process had sent still takes effect, as with any engine.
 */

import { connect, type Socket } from "node:net";
import { type Answer, type ControlCalls, decodeError, type EngineCalls, type Push, readLines } from "../wire.ts";

type Calls = EngineCalls & ControlCalls;
type Waiting = { readonly resolve: (value: unknown) => void; readonly reject: (error: Error) => void };

export class EngineConnection {
  readonly #socket: Socket;
  readonly #waiting = new Map<number, Waiting>();
  readonly #onPush: (push: Push) => void;
  #ids = 0;

  private constructor(socket: Socket, onPush: (push: Push) => void) {
    this.#socket = socket;
    this.#onPush = onPush;
    readLines<Answer | Push>(socket, (message) => this.#take(message));
  }

  static open(path: string, onPush: (push: Push) => void, onLost: () => void): Promise<EngineConnection> {
    const socket = connect(path);
    return new Promise((resolve, reject) => {
      socket.once("error", reject);
      socket.once("connect", () => {
        socket.on("error", () => {});
        const connection = new EngineConnection(socket, onPush);
        socket.on("close", () => {
          connection.#lost();
          onLost();
        });
        resolve(connection);
      });
    });
  }

  /** After an abort the wait ends; the request may still take effect. */
  ask<M extends keyof Calls>(
    method: M,
    args: Parameters<Calls[M]>,
    signal?: AbortSignal,
  ): Promise<ReturnType<Calls[M]>> {
    if (signal?.aborted === true) return Promise.reject(signal.reason);
    this.#ids += 1;
    const id = this.#ids;
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        this.#waiting.delete(id);
        reject(signal?.reason);
      };
      const ended = () => signal?.removeEventListener("abort", onAbort);
      signal?.addEventListener("abort", onAbort, { once: true });
      this.#waiting.set(id, {
        resolve: (value) => {
          ended();
          resolve(value as ReturnType<Calls[M]>);
        },
        reject: (error) => {
          ended();
          reject(error);
        },
      });
      this.#socket.write(`${JSON.stringify({ id, method, args })}\n`);
    });
  }

  /** For a request without a waiting caller: its failure would only mean that the run is ending. */
  tell<M extends keyof Calls>(method: M, args: Parameters<Calls[M]>): void {
    this.ask(method, args).catch(() => {});
  }

  close(): void {
    this.#socket.destroy();
  }

  #lost(): void {
    for (const { reject } of this.#waiting.values()) reject(new Error("the connection to the engine has ended"));
    this.#waiting.clear();
  }

  #take(message: Answer | Push): void {
    if ("push" in message) {
      this.#onPush(message);
      return;
    }
    const waiting = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (message.error === undefined) waiting?.resolve(message.value);
    else waiting?.reject(decodeError(message.error));
  }
}
