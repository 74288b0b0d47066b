/** A real daemon with an attachment to it, both gone when the test ends. */

import { onTestFinished } from "vitest";
import { type StartedDaemon, type StartOptions, startDaemon } from "../../../sandboxd/test/start-daemon.ts";
import { DaemonAttachment, type DaemonSandbox, type DaemonTarget } from "../../src/sandboxd/index.ts";
import { systemWorld } from "../../src/world/system-world.ts";

export interface Attached {
  readonly daemon: StartedDaemon;
  readonly attachment: DaemonAttachment;
  readonly sandbox: DaemonSandbox;
  readonly target: DaemonTarget;
}

export const world = systemWorld();

export async function attached(options: StartOptions = {}): Promise<Attached> {
  const daemon = await startDaemon(options);
  const target = targetOf(daemon);
  const attachment = await DaemonAttachment.open(target, world);
  onTestFinished(() => attachment.close());
  return { daemon, attachment, sandbox: attachment.sandbox, target };
}

export function targetOf({ config, socketPath, ready }: StartedDaemon): DaemonTarget {
  const { sandboxId, generation, token } = config;
  const address = ready.port === null ? { path: socketPath } : { host: "127.0.0.1", port: ready.port };
  return { address, sandboxId, generation, token };
}
