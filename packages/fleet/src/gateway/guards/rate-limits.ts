/**
 * Rate limits per key and per user, and for failed keys and failed AIO URLs per address. Token buckets: an average, and a burst above it.
 *
 * Each gateway counts by itself. Where gateways share a store, each also charges its buckets for what the others have
 * admitted (`rate-exchange.ts`): the averages hold for all gateways together, the burst is each gateway's own.
 * Failures are counted at each gateway alone.
 */

import { SandlotError } from "@sandlot/contract";
import type { GatewaySettings } from "../../config/gateway-settings.ts";
import type { World } from "../../world/world.ts";
import type { Caller } from "./caller.ts";

/** Callers tracked at once. A full bucket is forgotten without loss. */
const BUCKETS_MAX = 50_000;

/** What an address can fail with. Each has buckets of its own: a failing URL delays no key. */
export type Failing = "keys" | "AIO URLs";

interface Bucket {
  /** Negative after a charge: others have admitted more than was left here. */
  tokens: number;
  at: number;
}

export class RateLimits {
  readonly #world: World;
  readonly #keys: Buckets;
  readonly #users: Buckets;
  readonly #failures: Readonly<Record<Failing, Buckets>>;

  constructor(world: World, { rate }: Pick<GatewaySettings, "rate">) {
    this.#world = world;
    this.#keys = new Buckets(rate.perKeyPerSecond, rate.burst);
    this.#users = new Buckets(rate.perUserPerSecond, rate.burst);
    const failures = () => new Buckets(rate.perAddressFailuresPerMinute / 60, rate.perAddressFailuresPerMinute);
    this.#failures = { keys: failures(), "AIO URLs": failures() };
  }

  /** The buckets that gateways of one store agree on, by a letter. */
  get shared(): Readonly<Record<string, Buckets>> {
    return { k: this.#keys, u: this.#users };
  }

  count({ keyId, user }: Caller): void {
    const now = this.#world.monotonicMs();
    refuse("requests of this key", this.#keys, this.#keys.take(keyId, now));
    if (user !== null) refuse("requests for this user", this.#users, this.#users.take(user, now));
  }

  countFailure(address: string, what: Failing): void {
    const failures = this.#failures[what];
    refuse(`refused ${what} from this address`, failures, failures.take(address, this.#world.monotonicMs()));
  }

  /** Refuses an address that has no failure left, before it causes work. Takes nothing. */
  checkFailures(address: string, what: Failing): void {
    const failures = this.#failures[what];
    refuse(`refused ${what} from this address`, failures, failures.waitMs(address, this.#world.monotonicMs()));
  }
}

export class Buckets {
  readonly perSecond: number;
  readonly #burst: number;
  readonly #buckets = new Map<string, Bucket>();
  #taken = new Map<string, number>();
  #isTallying = false;

  constructor(perSecond: number, burst: number) {
    this.perSecond = perSecond;
    this.#burst = Math.max(1, burst);
  }

  /** Takes a token; or, when there is none, returns how long until there is. */
  take(name: string, now: number): number {
    const bucket = this.#filled(name, now);
    if (bucket.tokens < 1) return this.#untilOne(bucket);
    bucket.tokens -= 1;
    if (this.#isTallying) this.#taken.set(name, (this.#taken.get(name) ?? 0) + 1);
    return 0;
  }

  /** How long until there is a token; 0 when there is one. */
  waitMs(name: string, now: number): number {
    return this.#buckets.has(name) ? this.#untilOne(this.#filled(name, now)) : 0;
  }

  /** How many tokens each caller took since the last tally. Counting begins with the first. */
  tally(): ReadonlyMap<string, number> {
    const taken = this.#taken;
    this.#taken = new Map();
    this.#isTallying = true;
    return taken;
  }

  /** Takes tokens that other gateways have given, also more than there are. */
  charge(name: string, tokens: number, now: number): void {
    this.#filled(name, now).tokens -= tokens;
  }

  #untilOne({ tokens }: Bucket): number {
    return tokens < 1 ? ((1 - tokens) / this.perSecond) * 1_000 : 0;
  }

  #filled(name: string, now: number): Bucket {
    const known = this.#buckets.get(name);
    if (known !== undefined) {
      known.tokens = Math.min(this.#burst, known.tokens + ((now - known.at) / 1_000) * this.perSecond);
      known.at = now;
      return known;
    }
    if (this.#buckets.size >= BUCKETS_MAX) this.#forgetFull(now);
    const bucket: Bucket = { tokens: this.#burst, at: now };
    this.#buckets.set(name, bucket);
    return bucket;
  }

  #forgetFull(now: number): void {
    for (const [name, { tokens, at }] of this.#buckets)
      if (tokens + ((now - at) / 1_000) * this.perSecond >= this.#burst) this.#buckets.delete(name);
    // All buckets are in use: the caller idle for longest starts anew.
    const oldest = this.#buckets.keys().next();
    if (this.#buckets.size >= BUCKETS_MAX && oldest.done !== true) this.#buckets.delete(oldest.value);
  }
}

function refuse(scope: string, { perSecond }: Buckets, waitMs: number): void {
  if (waitMs <= 0) return;
  const retryAfterMs = Math.ceil(waitMs);
  throw new SandlotError("rate_limited", { scope: `${scope}, per second`, max: perSecond, retryAfterMs });
}
