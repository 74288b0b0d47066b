/**
 * The process that uses a workspaces volume: `volume-main <folder>`. It ends with the gateway that started it.
 *
 * A server that does not respond stops the system calls of this process, in its own threads. The gateway's event loop, its
 * name lookups and its exit do not depend on them. It may be killed at any moment: every step is repaired by repeating it.
 */

import { systemWorld } from "../../../../world/system-world.ts";
import { type FromVolume, receivedError, sendableError, type ToVolume } from "./volume-messages.ts";
import { VolumeService } from "./volume-service.ts";
import { VolumeWorkspaces } from "./volume-workspaces.ts";

type Method = (...args: readonly unknown[]) => Promise<unknown>;

interface Pull {
  resolve(piece: Uint8Array | null): void;
  reject(error: Error): void;
}

const [root = ""] = process.argv.slice(2);
const volume = new VolumeWorkspaces({ root, world: systemWorld(), onProblem: (problem) => send({ problem }) });
const service = new VolumeService(volume);
const pulls = new Map<number, Pull>();
let opening: Promise<void> | null = null;

function send(message: FromVolume): void {
  // A failure means that the gateway is gone; `disconnect` follows.
  process.send?.(message, undefined, undefined, () => {});
}

/** Asks the gateway for the content of a call, piece by piece. */
async function* contentOf(id: number): AsyncGenerator<Uint8Array> {
  for (;;) {
    const piece = await new Promise<Uint8Array | null>((resolve, reject) => {
      pulls.set(id, { resolve, reject });
      send({ id, pull: true });
    });
    if (piece === null) return;
    yield piece;
  }
}

async function serve(id: number, method: string, args: readonly unknown[]): Promise<void> {
  try {
    opening ??= volume.open().catch((error: unknown) => {
      opening = null;
      throw error;
    });
    await opening;
    const work = service[method as keyof VolumeService] as Method;
    send({ id, result: await work.call(service, ...args, contentOf(id)) });
  } catch (error) {
    send({ id, error: sendableError(error) });
  } finally {
    pulls.delete(id);
  }
}

process.on("message", (message: ToVolume) => {
  if ("method" in message) {
    void serve(message.id, message.method, message.args);
    return;
  }
  const pull = pulls.get(message.id);
  pulls.delete(message.id);
  if ("piece" in message) pull?.resolve(message.piece);
  else pull?.reject(receivedError({ code: null, details: {}, message: message.broken }));
});
// Threads may be stuck in the kernel, and an orderly exit would wait for them.
process.on("disconnect", () => process.kill(process.pid, "SIGKILL"));
send({ ready: true });
