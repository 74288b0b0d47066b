/**
 * Events of the other instances of a store, in this gateway's log, while it has readers.
 *
 * Bodies go from gateway to gateway over HTTP. A ring of events in the store was considered: a busy gateway emits
 * thousands a second, which the store would write and every gateway read, also where no reader is. Over HTTP a stream
 * without readers costs nothing, and the store is asked only who is alive.
 *
 * Invariants
 * - Only instances with an advertised address and a live session are asked. All others are named as not covered: at the
 *   beginning of a stream, and whenever that changes.
 * - A peer with a loopback address is asked only where this gateway's own is one too. Elsewhere that address is a
 *   program on this host, which would get the credential.
 * - Forwarding goes on for `LINGER_MS` after the last reader, so that a reader that reconnects misses nothing. When it
 *   begins anew, the log has a gap: what other instances emitted in between is not in it.
 * - Each gateway sends on its own events only, so no event goes in circles.
 * - At most `PEERS_MAX` gateways are followed.
 */

import type { FleetPeer } from "../../fleet.ts";
import { sleep } from "../../world/waiting.ts";
import type { Timer, World } from "../../world/world.ts";
import type { EventLog } from "./event-log.ts";
import type { PeerCredential } from "./peer-credential.ts";
import { mayAsk, peerStream } from "./peer-stream.ts";

const LINGER_MS = 60_000;
/** How often the store is asked who is alive, while there are readers. */
const LOOK_MS = 5_000;
/** How long a beginning stream waits for the other gateways. */
const SETTLING_MS = 1_000;
const RETRY_MS = 1_000;
const PEERS_MAX = 64;
/** Heartbeats that may be lost. */
const HEARTBEATS_MAX = 3;

export interface PeerEventsParts {
  readonly world: World;
  readonly log: EventLog;
  readonly peers: () => Promise<readonly FleetPeer[]>;
  readonly credential: PeerCredential;
  /** This gateway's advertised address; `null`: it has none. */
  readonly ownAddress: string | null;
  readonly heartbeatMs: number;
}

interface Followed {
  readonly address: string;
  readonly end: AbortController;
  isOpen: boolean;
}

export class PeerEvents {
  readonly #parts: PeerEventsParts;
  readonly #followed = new Map<string, Followed>();
  /** Live instances that cannot be asked. */
  #unasked: readonly string[] = [];
  #told = "";
  #readers = 0;
  #running: AbortController | null = null;
  #lingering: Timer | null = null;
  #settled: Promise<void> = Promise.resolve();

  constructor(parts: PeerEventsParts) {
    this.#parts = parts;
  }

  /** A reader has come. Forwarding goes on until it is disposed. */
  read(): Disposable {
    this.#readers += 1;
    this.#lingering?.cancel();
    this.#lingering = null;
    if (this.#running === null) this.#start();
    return {
      [Symbol.dispose]: () => {
        this.#readers -= 1;
        if (this.#readers > 0) return;
        this.#lingering = this.#parts.world.timer(LINGER_MS, () => this.close(), { background: true });
      },
    };
  }

  /** The instances whose events do not come now; waits a moment for those that are being asked. */
  async uncovered(signal: AbortSignal): Promise<readonly string[]> {
    const { world } = this.#parts;
    const stop = new AbortController();
    const late = sleep(world, SETTLING_MS, AbortSignal.any([signal, stop.signal]), { background: true });
    await Promise.race([this.#settled, late.catch(() => undefined)]).finally(() => stop.abort());
    return this.#uncovered();
  }

  close(): void {
    this.#lingering?.cancel();
    this.#running?.abort();
    this.#running = null;
    for (const { end } of this.#followed.values()) end.abort();
    this.#followed.clear();
    this.#unasked = [];
    this.#told = "";
  }

  #start(): void {
    this.#running = new AbortController();
    this.#parts.log.gap();
    this.#settled = this.#look(this.#running.signal).then((opened) => opened);
    void this.#lookOn(this.#running.signal);
  }

  async #lookOn(signal: AbortSignal): Promise<void> {
    await this.#settled;
    while (!signal.aborted) {
      this.#tell();
      await sleep(this.#parts.world, LOOK_MS, signal, { background: true }).catch(() => undefined);
      if (!signal.aborted) await this.#look(signal);
    }
  }

  /** Follows new peers and leaves those that are gone. Resolves when each new one has answered once. */
  async #look(signal: AbortSignal): Promise<void> {
    // A store that does not answer changes nothing: the present peers are followed on.
    const peers = await this.#parts.peers().catch(() => null);
    if (peers === null || signal.aborted) return;
    const reachable = peers
      .filter(({ address }) => address !== null && mayAsk(address, this.#parts.ownAddress))
      .slice(0, PEERS_MAX);
    const wanted = new Map(reachable.map(({ instance, address }) => [String(instance), address ?? ""]));
    this.#unasked = peers.map(({ instance }) => String(instance)).filter((instance) => !wanted.has(instance));
    for (const [instance, { end, address }] of this.#followed) {
      if (wanted.get(instance) === address) continue;
      end.abort();
      this.#followed.delete(instance);
      // Its last events may not have come, also where its stream counts as open: silence is noticed late.
      this.#parts.log.gap();
    }
    const begun = [...wanted].map(([instance, address]) =>
      this.#followed.has(instance) ? null : this.#follow(instance, address, signal),
    );
    await Promise.all(begun);
  }

  /** Resolves when the peer has answered, or failed to, for the first time. */
  #follow(instance: string, address: string, signal: AbortSignal): Promise<void> {
    const followed: Followed = { address, end: new AbortController(), isOpen: false };
    this.#followed.set(instance, followed);
    return new Promise((resolve) => {
      void this.#followOn(instance, followed, AbortSignal.any([signal, followed.end.signal]), resolve);
    });
  }

  async #followOn(instance: string, followed: Followed, signal: AbortSignal, answered: () => void): Promise<void> {
    const { world, log, credential, heartbeatMs } = this.#parts;
    const position = { lastId: null as string | null };
    const silenceMs = HEARTBEATS_MAX * heartbeatMs;
    const change = (isOpen: boolean) => {
      followed.isOpen = isOpen;
      answered();
      this.#tell();
    };
    while (!signal.aborted) {
      try {
        const { address } = followed;
        const parts = { world, address, credential: credential.for(instance, "events"), silenceMs, position };
        for await (const item of peerStream(parts, signal)) {
          if (item.kind === "open") {
            // Without an event to resume after, what came between two connections is unknown.
            if (followed.isOpen === false && position.lastId === null) log.gap();
            change(true);
          } else if (item.kind === "gap") log.gap();
          else log.forwarded(item.event, item.json);
        }
      } catch {
        // The peer is named as not covered until it answers again.
      }
      if (signal.aborted) break;
      change(false);
      await sleep(world, RETRY_MS, signal, { background: true }).catch(() => undefined);
    }
    answered();
  }

  #uncovered(): readonly string[] {
    const silent = [...this.#followed].filter(([, { isOpen }]) => !isOpen).map(([instance]) => instance);
    return [...this.#unasked, ...silent].sort();
  }

  /** Tells readers of a change. */
  #tell(): void {
    const uncovered = this.#uncovered();
    const text = uncovered.join();
    if (text === this.#told || this.#running === null) return;
    this.#told = text;
    this.#parts.log.partial(uncovered);
  }
}
