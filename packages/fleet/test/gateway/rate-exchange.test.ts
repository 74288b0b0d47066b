import { describe, expect, it } from "vitest";
import { resolveGatewaySettings } from "../../src/config/gateway-settings.ts";
import { RateExchange } from "../../src/gateway/guards/rate-exchange.ts";
import { RateLimits } from "../../src/gateway/guards/rate-limits.ts";
import { MemoryEntries } from "../../src/store/memory/memory-entries.ts";
import { VirtualTime } from "../support/virtual-time.ts";

const RATE = 200;
const BURST = 100;
const settings = resolveGatewaySettings({
  rate: { perKeyPerSecond: RATE, perUserPerSecond: 10_000, burst: BURST },
});

/** Gateways over one store in virtual time, and a caller that always asks at each of them. */
function gateways(count: number, options: { readonly alone?: boolean; readonly entriesMax?: number } = {}) {
  const time = new VirtualTime();
  const entries = new MemoryEntries(options.entriesMax);
  const problems: unknown[] = [];
  const all = Array.from({ length: count }, (_, index) => {
    const world = time.newWorld();
    const limits = new RateLimits(world, settings);
    const exchange =
      options.alone === true
        ? null
        : new RateExchange({
            ...{ world, entries, instance: `i-${index}`, buckets: limits.shared },
            onProblem: (error) => problems.push(error),
          });
    return { limits, exchange };
  });
  const isAdmitted = (limits: RateLimits, keyId = "key") => {
    try {
      limits.count({ keyId, scope: "platform", user: null, blueprints: null });
      return true;
    } catch {
      return false;
    }
  };
  /** Asks `perSecond` times at each chosen gateway. Returns how many were admitted in each second. */
  const ask = async (seconds: number, perSecond: number, at = all, keyId = "key") => {
    const admitted: number[] = [];
    for (let second = 0; second < seconds; second += 1) {
      let count = 0;
      for (let step = 0; step < 50; step += 1) {
        for (const { limits } of at)
          for (let turn = 0; turn < perSecond / 50; turn += 1) if (isAdmitted(limits, keyId)) count += 1;
        await time.advance(20);
      }
      admitted.push(count);
    }
    return admitted;
  };
  return { time, entries, problems, all, ask };
}

const sum = (numbers: readonly number[]) => numbers.reduce((total, one) => total + one, 0);

describe("rate limits of gateways that share a store", () => {
  for (const count of [2, 3])
    it(`${count} gateways together admit the average of one, within the stated error`, async () => {
      const { ask, problems } = gateways(count);
      const seconds = 60;
      const admitted = sum(await ask(seconds, 2 * RATE));
      const bound = RATE * seconds * (1 + 0.01 * (count - 1)) + count * BURST + (count - 1) * RATE * 3;
      expect(admitted).toBeLessThanOrEqual(bound);
      // It is no tighter than the limit either.
      expect(admitted).toBeGreaterThanOrEqual(RATE * seconds * 0.9);
      expect(problems).toEqual([]);
    });

  it("without the exchange two gateways admit twice the average", async () => {
    const { ask } = gateways(2, { alone: true });
    expect(sum(await ask(60, 2 * RATE))).toBeGreaterThan(1.9 * RATE * 60);
  });

  it("a caller that uses one gateway only has its whole rate there", async () => {
    const { ask, all } = gateways(2);
    await ask(5, RATE / 2);
    const admitted = await ask(20, 2 * RATE, all.slice(0, 1));
    expect(sum(admitted.slice(5))).toBeGreaterThanOrEqual(RATE * 15 * 0.95);
  });

  it("one caller's use does not slow another", async () => {
    const { ask } = gateways(2);
    await ask(10, 4 * RATE, undefined, "busy");
    expect(sum(await ask(5, RATE / 4, undefined, "other"))).toBe(5 * 2 * (RATE / 4));
  });

  it("gateways with callers that are not busy read and write nothing", async () => {
    const { entries, ask, time } = gateways(2);
    let used = 0;
    const [list, put] = [entries.list.bind(entries), entries.put.bind(entries)];
    entries.list = (prefix) => {
      used += 1;
      return list(prefix);
    };
    entries.put = (...args) => {
      used += 1;
      return put(...args);
    };
    for (let turn = 0; turn < 10; turn += 1) await ask(1, 0);
    expect(used).toBe(0);
    await ask(2, RATE);
    expect(used).toBeGreaterThan(0);
    await time.advance(10_000);
    const atRest = used;
    await time.advance(60_000);
    expect(used).toBe(atRest);
    expect(await list("rates/")).toEqual([]);
  });

  it("while the store does not answer each gateway limits by itself, and says so once", async () => {
    const { entries, ask, problems } = gateways(2);
    await ask(5, 2 * RATE);
    const put = entries.put.bind(entries);
    entries.put = () => Promise.reject(new Error("the store is away"));
    expect(sum(await ask(20, 2 * RATE))).toBeGreaterThan(1.8 * RATE * 20);
    expect(problems.length).toBe(2);
    entries.put = put;
    await ask(5, 2 * RATE);
    expect(sum(await ask(30, 2 * RATE))).toBeLessThanOrEqual(RATE * 30 * 1.01 + 3 * RATE);
  });

  it("a gateway for which a store has no room says so once, and still charges what the others report", async () => {
    const { ask, entries, problems } = gateways(2, { entriesMax: 1 });
    const seconds = 20;
    expect(sum(await ask(seconds, 2 * RATE))).toBeLessThan(1.6 * RATE * seconds);
    expect((await entries.list("rates/")).map(({ name }) => name)).toEqual(["rates/i-0"]);
    expect(problems.map(String)).toEqual([expect.stringContaining("1 entries already")]);
  });

  it("a gateway that is gone without a word is forgotten", async () => {
    const { entries, ask } = gateways(2);
    await entries.put("rates/i-gone", JSON.stringify({ turn: 7, callers: {} }), null);
    const names = async () => (await entries.list("rates/")).map(({ name }) => name).sort();
    await ask(30, RATE);
    expect(await names()).toEqual(["rates/i-0", "rates/i-1", "rates/i-gone"]);
    await ask(40, RATE);
    expect(await names()).toEqual(["rates/i-0", "rates/i-1"]);
  });
});
