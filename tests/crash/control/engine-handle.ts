/** The engine process as main sees it: started first, ended last, and called over its socket. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { openSync } from "node:fs";
import { EngineConnection } from "../backend-client/engine-connection.ts";
import type { Push } from "../wire.ts";

export class EngineHandle {
  readonly connection: EngineConnection;
  readonly #process: ChildProcess;

  private constructor(child: ChildProcess, connection: EngineConnection) {
    this.#process = child;
    this.connection = connection;
  }

  static async start(options: {
    readonly program: string;
    readonly environment: Readonly<Record<string, string>>;
    readonly socketPath: string;
    readonly stderrPath: string;
    readonly onPush: (push: Push) => void;
    readonly onLost: () => void;
  }): Promise<EngineHandle> {
    const stderr = openSync(options.stderrPath, "a");
    const argv = ["--conditions=sandlot-source", options.program];
    const child = spawn(process.execPath, argv, { stdio: ["pipe", "pipe", stderr], env: { ...options.environment } });
    const failed = once(child, "close").then(() => {
      throw new Error(`the engine did not start; see ${options.stderrPath}`);
    });
    failed.catch(() => {});
    if (child.stdout !== null) await Promise.race([once(child.stdout, "data"), failed]);
    const connection = await EngineConnection.open(options.socketPath, options.onPush, options.onLost);
    await connection.ask("control", []);
    return new EngineHandle(child, connection);
  }

  get pid(): number {
    return this.#process.pid ?? -1;
  }

  async end(): Promise<void> {
    const exited = this.#process.exitCode === null ? once(this.#process, "close") : null;
    this.connection.close();
    await exited;
  }

  killNow(): void {
    if (this.#process.exitCode === null) this.#process.kill("SIGKILL");
  }
}
