/**
 * The directory that a container and its fleet share: the configuration goes in, readiness and the daemon's socket come
 * out. A daemon that listens on a port, or announces itself elsewhere, uses less of it.
 *
 *   s/<12 hex>       the daemon's socket, where the fleet connects; no container can reach it
 *   s/<12 hex>.d/    mounted into the container      c  configuration, until it is ready
 *                                                    r  the fleet listens here for readiness
 *                                                    d  the daemon's socket, until it is taken out
 *
 * Invariants
 * - The fleet never connects to anything inside the mounted directory: a sandbox could plant a link there to a socket
 *   of the host. It moves the socket out by a rename first, then checks that it is a socket.
 */

import { chmodSync, chownSync, lstatSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import type { DaemonConfig } from "@sandlot/contract";
import { configText } from "@sandlot/sandboxd";
import type { Account } from "../../../host/accounts/index.ts";
import { type Layout, type ObjectName, socketPath, unfinishedSocketPath } from "../../../host/layout.ts";
import { readReadyLine } from "../../../sandboxd/index.ts";

export function socketDirectory(layout: Layout, name: ObjectName): string {
  return `${socketPath(layout, name)}.d`;
}

/** Waits for the ready line of a daemon. */
export interface ReadyListener {
  /** Resolves when it is ready. */
  wait(signal: AbortSignal): Promise<void>;
  close(): void;
}

/**
 * Makes the directory, with everything a container needs to start. `account` becomes its owner; `null` for this
 * process. Listens where the configuration says that readiness is announced here.
 */
export async function makeSocketDirectory(
  layout: Layout,
  name: ObjectName,
  config: DaemonConfig,
  account: Account | null,
): Promise<ReadyListener | null> {
  const directory = socketDirectory(layout, name);
  mkdirSync(directory, { mode: 0o700 });
  const own = (path: string) => account !== null && chownSync(path, account.uid, account.gid);
  writeFileSync(join(directory, "c"), configText(config), { mode: 0o400 });
  own(join(directory, "c"));
  if (config.ready === undefined || "fd" in config.ready) {
    own(directory);
    return null;
  }
  const server = createServer();
  const listener = listenerOf(server, config);
  const unfinished = unfinishedSocketPath(layout, name);
  try {
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen({ path: unfinished }, resolve);
    });
    chmodSync(unfinished, 0o600);
    own(unfinished);
    renameSync(unfinished, join(directory, "r"));
    own(directory);
    return listener;
  } catch (error) {
    listener.close();
    throw error;
  }
}

/** Moves the daemon's socket out of the container's reach. Returns whether there was one. */
export function publishSocket(layout: Layout, name: ObjectName): boolean {
  const published = socketPath(layout, name);
  const taken = unfinishedSocketPath(layout, name);
  try {
    renameSync(join(socketDirectory(layout, name), "d"), taken);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return false;
    throw error;
  }
  if (!lstatSync(taken).isSocket()) {
    rmSync(taken, { recursive: true, force: true });
    return false;
  }
  renameSync(taken, published);
  return true;
}

/** Whether the engine has put the daemon's socket where the fleet connects. The container cannot reach that place. */
export function isRelayed(layout: Layout, name: ObjectName): boolean {
  return lstatSync(socketPath(layout, name), { throwIfNoEntry: false })?.isSocket() === true;
}

/** Removes the files that only the start needed. */
export function clearStart(layout: Layout, name: ObjectName): void {
  for (const file of ["c", "r"]) rmSync(join(socketDirectory(layout, name), file), { force: true });
}

export function removeSocketDirectory(layout: Layout, name: ObjectName): void {
  for (const path of [socketPath(layout, name), unfinishedSocketPath(layout, name), socketDirectory(layout, name)])
    rmSync(path, { recursive: true, force: true });
}

function listenerOf(server: Server, { sandboxId, generation }: DaemonConfig): ReadyListener {
  const connected = new Set<Socket>();
  const announced = new Promise<void>((resolve) => {
    server.on("connection", (socket) => {
      connected.add(socket);
      socket.on("error", () => {});
      readReadyLine(socket).then(
        (line) => {
          if (line.sandboxId === sandboxId && line.generation === generation) resolve();
        },
        () => socket.destroy(),
      );
    });
  });
  return {
    wait: (signal) =>
      new Promise((resolve, reject) => {
        const onAbort = () => reject(signal.reason);
        if (signal.aborted) return onAbort();
        signal.addEventListener("abort", onAbort, { once: true });
        void announced.then(() => {
          signal.removeEventListener("abort", onAbort);
          resolve();
        });
      }),
    close: () => {
      for (const socket of connected) socket.destroy();
      server.close();
    },
  };
}
