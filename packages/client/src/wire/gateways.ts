/**
 * The gateways of a fleet, as one client knows them: the one it was given, and for threads that live elsewhere the one
 * that it was sent to.
 *
 * Invariants
 * - A request goes to another gateway only after the given one answered `thread_elsewhere`, and only to an address in
 *   that answer.
 * - The key never travels in the clear because of such an answer: an `http` address beyond loopback is used only if the
 *   given gateway has one, a loopback address only if the given gateway is on loopback. `https` may be used always.
 * - An address is asked for its health, without the key, before anything is sent there.
 * - A place is remembered for a minute. Then the given gateway has to name it again: another server may have taken over
 *   the address.
 */

import { later, monotonicMs } from "./clock.ts";

/** Threads whose gateway is remembered. A forgotten one costs a request. */
const THREADS_MAX = 10_000;
const REMEMBERED_MS = 60_000;
/** Addresses of one answer that are tried, and how long each may take. */
const TRIED_MAX = 8;
const PROBE_MS = 2_000;

interface Place {
  readonly url: string;
  readonly until: number;
}

export class Gateways {
  readonly given: string;
  readonly #probe: (url: string, signal: AbortSignal) => Promise<boolean>;
  readonly #now: () => number;
  readonly #ofThreads = new Map<string, Place>();

  /** `probe` says whether a gateway answers at an address. It sends no key. */
  constructor(given: string, probe: (url: string, signal: AbortSignal) => Promise<boolean>, now = monotonicMs) {
    this.given = given;
    this.#probe = probe;
    this.#now = now;
  }

  /** Where to ask for a thread; `null`: a request that concerns none. */
  of(thread: string | null): string {
    const place = thread === null ? undefined : this.#ofThreads.get(thread);
    return place === undefined || this.#now() >= place.until ? this.given : place.url;
  }

  /** Where the last request for a thread has gone, for a connection that belongs to that request. */
  lastOf(thread: string | null): string {
    return (thread === null ? undefined : this.#ofThreads.get(thread)?.url) ?? this.given;
  }

  /** Sends the next requests of a thread to the given gateway again. */
  forget(thread: string | null): void {
    if (thread !== null) this.#ofThreads.delete(thread);
  }

  /** Remembers the first of these gateways that may be used and answers. False: there is none. */
  async follow(thread: string, advertised: unknown, signal?: AbortSignal): Promise<boolean> {
    for (const address of Array.isArray(advertised) ? advertised.slice(0, TRIED_MAX) : []) {
      const url = usableAddress(this.given, address);
      if (url === null || !(await this.#answers(url, signal))) continue;
      const oldest = this.#ofThreads.keys().next();
      if (this.#ofThreads.size >= THREADS_MAX && oldest.done !== true) this.#ofThreads.delete(oldest.value);
      // As the newest: a place that is named again may be in the map already.
      this.#ofThreads.delete(thread);
      this.#ofThreads.set(thread, { url, until: this.#now() + REMEMBERED_MS });
      return true;
    }
    return false;
  }

  async #answers(url: string, signal: AbortSignal | undefined): Promise<boolean> {
    signal?.throwIfAborted();
    const late = new AbortController();
    const stop = later(PROBE_MS, () => late.abort(new Error("the gateway did not answer in time")));
    try {
      const until = signal === undefined ? late.signal : AbortSignal.any([signal, late.signal]);
      return await this.#probe(url, until);
    } catch {
      // Unreachable, whatever the reason; the caller's own signal is checked before the next one.
      return false;
    } finally {
      stop();
    }
  }
}

/** The advertised address in the form that requests use; `null` where the key may not be sent. */
export function usableAddress(given: string, advertised: unknown): string | null {
  const target = typeof advertised === "string" && URL.canParse(advertised) ? new URL(advertised) : null;
  if (target === null || target.username !== "" || target.password !== "") return null;
  if (target.search !== "" || target.hash !== "" || !/^https?:$/.test(target.protocol)) return null;
  const origin = new URL(given);
  const isAllowed = isLoopback(target.hostname)
    ? isLoopback(origin.hostname)
    : target.protocol === "https:" || (origin.protocol === "http:" && !isLoopback(origin.hostname));
  return isAllowed ? target.href.replace(/\/+$/, "") : null;
}

function isLoopback(host: string): boolean {
  return host === "localhost" || host.endsWith(".localhost") || host === "[::1]" || /^127(?:\.\d{1,3}){3}$/.test(host);
}

/** The thread in the path of a request. */
export function threadInPath(path: string): string | null {
  const [, segment] = /^\/(?:v1|api)\/threads\/([^/?]+)/.exec(path) ?? [];
  return segment === undefined ? null : decodeURIComponent(segment);
}
