/**
 * Waits until the network policy of this sandbox is enforced. An engine may start a sandbox before its policy has an
 * effect; a connection that a command opens in that moment would stay open.
 *
 *   connect to the canary ─▶ reached: not enforced yet, again ─▶ refused twice in a row: enforced
 *                                     └ still reached at the deadline: `NotIsolated`
 *
 * One refusal is not enough: a network that is not up yet refuses as well. Packets that are dropped give no answer, so
 * silence counts as a refusal.
 */

import { connect } from "node:net";
import { CANARY_TIMEOUT_MS, type CanaryReport, type DaemonCanary } from "@sandlot/contract";
import { monotonicMs, sleep, timer } from "./clock.ts";

/** A listener in the same cluster answers sooner. */
const SILENCE_MS = 400;
const BETWEEN_MS = 100;
const REFUSALS_NEEDED = 2;

/** The canary was reached until the deadline. The message is for the fleet's operator. */
export class NotIsolated extends Error {
  override readonly name = "NotIsolated";
}

export async function waitForPolicy({
  host,
  port,
  timeoutMs = CANARY_TIMEOUT_MS,
}: DaemonCanary): Promise<CanaryReport> {
  const startedAt = monotonicMs();
  let reachedCount = 0;
  for (let refusals = 0; ; ) {
    const refusedBy = await attempt(host, port);
    const durationMs = Math.round(monotonicMs() - startedAt);
    if (refusedBy === null) reachedCount++;
    refusals = refusedBy === null ? 0 : refusals + 1;
    if (refusedBy !== null && refusals >= REFUSALS_NEEDED) return { reachedCount, refusedBy, durationMs };
    if (durationMs >= timeoutMs)
      throw new NotIsolated(`no network policy is enforced: ${host}:${port} was reached after ${durationMs} ms`);
    await sleep(BETWEEN_MS);
  }
}

/** `null` when the canary was reached, otherwise why not. */
function attempt(host: string, port: number): Promise<string | null> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const settle = (refusedBy: string | null): void => {
      silence.cancel();
      socket.destroy();
      resolve(refusedBy);
    };
    const silence = timer(SILENCE_MS, () => settle("TIMEOUT"));
    socket.once("connect", () => settle(null));
    socket.on("error", (error: NodeJS.ErrnoException) => settle(error.code ?? error.message.slice(0, 64)));
  });
}
