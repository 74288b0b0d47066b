/**
 * Connects to a container that has no network of the engine: to a port of its own loopback.
 *
 * A socket stays in the network namespace in which it was made, also in another process. So a child enters the
 * container's namespace, connects there, and passes the connections to this process. Nothing is published, nothing runs
 * inside, and no data passes through the child.
 */

import { type ChildProcess, spawn } from "node:child_process";
import type { Socket } from "node:net";
import { z } from "zod";
import { NoAnswer } from "../../../compat/aio/wire/wire.ts";
import type { Account } from "../../../host/accounts/index.ts";
import { enterNamespace } from "../../../host/egress/namespace/commands.ts";
import { programFile } from "../../../package-files.ts";
import type { World } from "../../../world/world.ts";

export interface DoorOptions {
  /** A process in the container's network namespace. */
  readonly pid: number;
  readonly port: number;
  /** The account of the child once it is inside. */
  readonly account: Account;
  readonly world: World;
}

const OPEN_MS = 10_000;
const NODE_FLAGS = ["--max-old-space-size=32", "--max-semi-space-size=1", "--no-warnings"];
const messageSchema = z.object({ id: z.int(), problem: z.string().nullable() });

interface Waiting {
  resolve(socket: Socket | null): void;
  reject(error: Error): void;
}

export class NamespaceConnector {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, Waiting>();
  #serial = 0;
  #ended = false;

  private constructor(child: ChildProcess) {
    this.#child = child;
    child.on("message", (message, handle) => this.#hear(message, handle as Socket | undefined));
    child.once("error", () => this.#end());
    child.once("exit", () => this.#end());
    child.unref();
    child.channel?.unref();
  }

  /** Rejects with `NoAnswer` when it cannot enter. */
  static async open({ pid, port, account, world }: DoorOptions): Promise<NamespaceConnector> {
    const file = programFile("backends/docker/aio/namespace-connector-child");
    const told = [port, account.uid, account.gid].map(String);
    const [program = "", ...args] = [...enterNamespace(pid), process.execPath, ...NODE_FLAGS, file, ...told];
    const child = spawn(program, args, { stdio: ["ignore", "ignore", "ignore", "ipc"], cwd: "/", env: {} });
    const connector = new NamespaceConnector(child);
    const timer = world.timer(OPEN_MS, () => connector.close());
    try {
      // The child's first message comes without a request: it is inside.
      await connector.#wait(0);
      return connector;
    } finally {
      timer.cancel();
    }
  }

  async connect(): Promise<Socket> {
    const id = ++this.#serial;
    const waiting = this.#wait(id);
    if (!this.#ended) this.#child.send(id);
    const socket = await waiting;
    if (socket === null) throw new NoAnswer("the connection was lost on the way");
    return socket;
  }

  /** Idempotent. Holders close the connections that they received. */
  close(): void {
    if (this.#ended) return;
    this.#end();
    if (this.#child.connected) this.#child.disconnect();
    this.#child.kill("SIGKILL");
  }

  #wait(id: number): Promise<Socket | null> {
    if (this.#ended) return Promise.reject(new NoAnswer("the way into the sandbox is closed"));
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
  }

  #hear(message: unknown, socket: Socket | undefined): void {
    const parsed = messageSchema.safeParse(message);
    const waiting = parsed.success ? this.#waiting.get(parsed.data.id) : undefined;
    if (!parsed.success || waiting === undefined) return void socket?.destroy();
    this.#waiting.delete(parsed.data.id);
    const { problem } = parsed.data;
    if (problem === null) waiting.resolve(socket ?? null);
    else waiting.reject(new NoAnswer(`nothing answers inside: ${problem}`));
  }

  #end(): void {
    this.#ended = true;
    for (const { reject } of this.#waiting.values()) reject(new NoAnswer("there is no way into the sandbox"));
    this.#waiting.clear();
  }
}
