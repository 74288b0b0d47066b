/** When a daemon that does not answer is lost, by what the engine says and how soon. No engine is needed. */

import type { Generation, Token } from "@sandlot/contract";
import { expect, it } from "vitest";
import { ContainerCredentials, type CredentialParts } from "../../../src/backends/docker/container-credentials.ts";
import type { Layout, ObjectName } from "../../../src/host/layout.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import type { Liveness, World } from "../../../src/world/world.ts";

const system = systemWorld();

function isDead(probe: () => Promise<Liveness>, haste = 1): Promise<boolean> {
  const world: World = {
    ...system,
    monotonicMs: () => system.monotonicMs() * haste,
    timer: (delayMs, fire, options) => system.timer(delayMs / haste, fire, options),
  };
  const engine = { facts: { relaysSockets: false } };
  const layout: Layout = { root: "/n", objects: "/n/o", sockets: "/n/s", egress: "/n/e" };
  const parts = { world, liveness: { probe }, engine, layout, publishes: false } as unknown as CredentialParts;
  const target = new ContainerCredentials(parts).target("s-1" as ObjectName, "s", {
    generation: 1 as Generation,
    token: "t" as Token,
  });
  return target.isDead?.() ?? Promise.reject(new Error("nothing to ask"));
}

const after = (ms: number, answer: Liveness) => () =>
  new Promise<Liveness>((resolve) => void system.timer(ms, () => resolve(answer)));

it("a busy engine may take more than a second to say that it is dead", async () => {
  expect(await isDead(after(1_300, "dead"))).toBe(true);
});

it("what the engine goes on calling alive is not lost, and neither is what it does not answer for", async () => {
  const startedAt = system.monotonicMs();
  expect(await isDead(after(5, "alive"))).toBe(false);
  expect(system.monotonicMs() - startedAt).toBeGreaterThan(900);
  expect(await isDead(() => new Promise(() => {}), 50)).toBe(false);
  expect(await isDead(after(5, "unknown"))).toBe(false);
});

it("an engine may notice the death a moment later", async () => {
  let looks = 0;
  expect(await isDead(async () => (++looks < 4 ? "alive" : "dead"))).toBe(true);
});
