/**
 * Reports every start of a container of a thread: from then on its daemon is awaited. Remembers its network namespace,
 * in which nothing may run when the container is gone.
 *
 * Invariant: a namespace is held open while it is watched, because otherwise the kernel reuses its number.
 */

import { closeSync, fstatSync, openSync, readdirSync, readFileSync, statSync } from "node:fs";
import type Docker from "dockerode";
import type { DockerEnvironment } from "./docker-environment.ts";
import type { StartWatch } from "./target.ts";

interface EventStream {
  on(event: "data" | "error", listener: (line: Buffer) => void): unknown;
  destroy(): void;
}

export class Starts implements StartWatch {
  listener: () => void = () => {};
  readonly #docker: Docker;
  readonly #stream: EventStream;
  readonly #networks: { readonly fd: number; readonly inode: number; readonly containerId: string }[] = [];

  private constructor(docker: Docker, stream: EventStream) {
    this.#docker = docker;
    this.#stream = stream;
    stream.on("data", (line) => {
      this.listener();
      for (const [, id = ""] of line.toString("utf8").matchAll(/"id":"([0-9a-f]{64})"/g)) void this.#note(id);
    });
    stream.on("error", () => {});
  }

  static async open({ engine, fleetId }: DockerEnvironment): Promise<Starts> {
    // Blanks have no thread.
    const label = [`sandlot.fleet=${fleetId}`, "sandlot.thread"];
    const stream = await engine.docker.getEvents({ filters: { type: ["container"], event: ["start"], label } });
    return new Starts(engine.docker, stream as unknown as EventStream);
  }

  close(): void {
    this.#stream.destroy();
    for (const { fd } of this.#networks.splice(0)) closeSync(fd);
  }

  /** Processes in the network of a container that the engine no longer has. */
  async strays(): Promise<readonly string[]> {
    const there = new Set((await this.#docker.listContainers({ all: true })).map(({ Id }) => Id));
    const gone = this.#networks.filter(({ containerId }) => !there.has(containerId));
    const inodes = new Set(gone.map(({ inode }) => inode));
    const found = processes().filter(({ network }) => inodes.has(network));
    if (found.length > 0) return found.map(({ pid, command }) => `${pid} ${command}`);
    for (const network of gone) {
      this.#networks.splice(this.#networks.indexOf(network), 1);
      closeSync(network.fd);
    }
    return [];
  }

  async #note(containerId: string): Promise<void> {
    try {
      const { State } = await this.#docker.getContainer(containerId).inspect();
      if (State.Pid === 0) return;
      const fd = openSync(`/proc/${State.Pid}/ns/net`, "r");
      this.#networks.push({ fd, inode: fstatSync(fd).ino, containerId });
    } catch {
      // It has ended meanwhile.
    }
  }
}

function processes(): readonly { pid: string; network: number; command: string }[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        const command = readFileSync(`/proc/${pid}/cmdline`, "latin1").replaceAll("\0", " ").slice(0, 200);
        return [{ pid, network: statSync(`/proc/${pid}/ns/net`).ino, command }];
      } catch {
        // It has ended.
        return [];
      }
    });
}
