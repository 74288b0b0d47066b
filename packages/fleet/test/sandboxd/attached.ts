/**
 * A real daemon with an attachment to it, both gone when the test ends.
 *
 * `SANDLOT_TEST_DAEMON_KEYS=1` lets every daemon listen on a port with a pre-shared key instead of a unix socket, so that
 * each test of this folder also tests that transport. Three of them are about the unix socket and fail then: what a dead
 * socket proves, a request past the attachment, and the small buffers of a slow watch.
 */

import { onTestFinished } from "vitest";
import { type StartedDaemon, type StartOptions, startDaemon } from "../../../sandboxd/test/start-daemon.ts";
import { DaemonAttachment, type DaemonSandbox, type DaemonTarget, FleetKeys } from "../../src/sandboxd/index.ts";
import { systemWorld } from "../../src/world/system-world.ts";

export interface Attached {
  readonly daemon: StartedDaemon;
  readonly attachment: DaemonAttachment;
  readonly sandbox: DaemonSandbox;
  readonly target: DaemonTarget;
}

export const world = systemWorld();

export const OWNER = { sandboxId: "sandbox-1", blueprintHash: "0123456789abcdef0123456789abcdef" };
export const KEYS = FleetKeys.parse(`k1:${Buffer.alloc(32, 1).toString("base64")}\n`, "keys");

/** A port with a key, for the daemon's configuration. */
export function keyedListen(keys = KEYS) {
  return { host: "127.0.0.1", port: 0, psk: keys.issue("daemon", OWNER) };
}

const ALWAYS_KEYED = process.env.SANDLOT_TEST_DAEMON_KEYS === "1";

export async function attached(options: StartOptions = {}): Promise<Attached> {
  const config = {
    ...(ALWAYS_KEYED && options.supervised === undefined && { listen: keyedListen() }),
    ...options.config,
  };
  const daemon = await startDaemon({ ...options, config });
  const target = targetOf(daemon);
  const attachment = await DaemonAttachment.open(target, world);
  onTestFinished(() => attachment.close());
  return { daemon, attachment, sandbox: attachment.sandbox, target };
}

export function targetOf({ config, socketPath, ready }: StartedDaemon): DaemonTarget {
  const { sandboxId, generation, token } = config;
  if (ready.port === null) return { address: { path: socketPath }, sandboxId, generation, token };
  const isKeyed = "psk" in config.listen && config.listen.psk !== undefined;
  const keys = isKeyed ? { keys: KEYS.accepted("daemon", OWNER) } : {};
  return { address: { host: "127.0.0.1", port: ready.port, ...keys }, sandboxId, generation, token };
}
