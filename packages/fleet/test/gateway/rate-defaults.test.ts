/** The default rate limits of a gateway: room for an agent that works in parallel, an end for a loop. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { resolveGatewaySettings } from "../../src/config/gateway-settings.ts";
import type { Caller } from "../../src/gateway/guards/caller.ts";
import { RateLimits } from "../../src/gateway/guards/rate-limits.ts";
import type { World } from "../../src/world/world.ts";

const caller = { keyId: "k", scope: "user", user: "alice", blueprints: null } as unknown as Caller;

function limits() {
  let now = 0;
  const world = { monotonicMs: () => now } as World;
  return {
    rates: new RateLimits(world, resolveGatewaySettings()),
    pass: (ms: number) => {
      now += ms;
    },
  };
}

test("eight callers of one user that each ask 200 times a second are never refused", () => {
  const { rates, pass } = limits();
  for (let second = 0; second < 60; second += 1) {
    for (let call = 0; call < 8 * 200; call += 1) rates.count(caller);
    pass(1_000);
  }
});

test("a caller in a loop is refused after the burst, with a time to retry", () => {
  const { rates } = limits();
  const { burst } = resolveGatewaySettings().rate;
  for (let call = 0; call < burst; call += 1) rates.count(caller);
  expect(() => rates.count(caller)).toThrow(expect.objectContaining({ code: "rate_limited" }));
});

test("the guide names the defaults", () => {
  const { perKeyPerSecond, perUserPerSecond, burst } = resolveGatewaySettings().rate;
  const guide = readFileSync(join(import.meta.dirname, "../../../../docs/guides/gateway.md"), "utf8");
  expect(guide).toContain(`| ${perKeyPerSecond}, ${perUserPerSecond}, ${burst} `);
});
