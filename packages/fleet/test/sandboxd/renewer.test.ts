/** Rounds of renewals: all sandboxes, few at once, and silent ones keep none of the others waiting for long. */

import type { SandboxId } from "@sandlot/contract";
import { expect, it } from "vitest";
import type { AskedObject, KnownCredentials } from "../../src/sandboxd/credentials.ts";
import { Renewer } from "../../src/sandboxd/renewer.ts";
import { systemWorld } from "../../src/world/system-world.ts";

const ORPHAN_MS = 1_200;

function renewing(count: number, isSilent: (name: string) => boolean) {
  const names = Array.from({ length: count }, (_, index) => `sandbox-${index}`);
  const renewed = new Map<string, number>();
  let [now, most] = [0, 0];
  const ask = async ({ name }: AskedObject) => {
    now += 1;
    most = Math.max(most, now);
    await new Promise((resolve) => setTimeout(resolve, isSilent(name) ? 60_000 : 1).unref());
    now -= 1;
    renewed.set(name, (renewed.get(name) ?? 0) + 1);
  };
  const living = async (name: string) =>
    ({ name, record: { labels: { sandboxId: name as SandboxId } } }) as AskedObject;
  const known = { ask } as unknown as KnownCredentials;
  const renewer = new Renewer(systemWorld(), { names: async () => names, living }, known, ORPHAN_MS);
  renewer.start();
  return { names, renewed, renewer, most: () => most };
}

it("renews each of thousands, and few at once", async () => {
  const { names, renewed, renewer, most } = renewing(2_000, () => false);
  await expect.poll(() => renewed.size, { timeout: 30_000 }).toBe(names.length);
  renewer.stop();
  expect(most()).toBeLessThanOrEqual(128);
});

it("silent ones keep no other from being renewed", async () => {
  const isSilent = (name: string) => Number(name.slice(8)) < 200;
  const { names, renewed, renewer } = renewing(400, isSilent);
  await expect.poll(() => renewed.size, { timeout: 30_000 }).toBe(names.filter((name) => !isSilent(name)).length);
  renewer.stop();
});
