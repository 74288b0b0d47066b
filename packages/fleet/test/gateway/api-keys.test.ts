/** The cache of recently verified keys: its content, and how long it lasts. */

import { mkdtemp, rm, unlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ApiKeys } from "../../src/gateway/keys/api-keys.ts";
import { systemWorld } from "../../src/world/system-world.ts";

const RECHECK_MS = 1_000;

let home: string;
let keys: ApiKeys;
let nowMs: number;

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), "sl-keys-"));
  nowMs = 0;
  keys = await ApiKeys.open(home, { ...systemWorld(), monotonicMs: () => nowMs });
});
afterEach(() => rm(home, { recursive: true, force: true }));

/** The same key with another secret. */
function forged(key: string): string {
  return key.slice(0, -1) + (key.endsWith("0") ? "1" : "0");
}

test("a wrong secret is refused after a right one, and a right one is not after a wrong one", async () => {
  const { id, key } = await keys.create({ scope: "operator" });
  for (let time = 0; time < 3; time += 1) {
    expect(await keys.verify(key)).toMatchObject({ id });
    expect(await keys.verify(forged(key))).toBeNull();
  }
});

test("the secret of one key opens no other", async () => {
  const [one, other] = [await keys.create({ scope: "operator" }), await keys.create({ scope: "operator" })];
  await keys.verify(one.key);
  await keys.verify(other.key);
  const [, , secret] = one.key.split("_");
  expect(await keys.verify(`slk_${other.id}_${secret}`)).toBeNull();
});

test("a key that another process has revoked stops within a second, however often it was proven", async () => {
  const { id, key } = await keys.create({ scope: "operator" });
  await keys.verify(key);
  await unlink(join(home, "keys", `${id}.json`));
  nowMs = RECHECK_MS - 1;
  expect(await keys.verify(key)).toMatchObject({ id });
  nowMs = RECHECK_MS;
  expect(await keys.verify(key)).toBeNull();
});

test("a key with an expiry works until then, also where it is cached, and says why not after it", async () => {
  let wallMs = 1_000_000;
  const world = { ...systemWorld(), monotonicMs: () => nowMs, wallMs: () => wallMs };
  const timed = await ApiKeys.open(home, world);
  const { id, key, expiresAt } = await timed.create({ scope: "operator", ttlMs: 60_000 });
  expect(expiresAt).toBe(1_060_000);
  wallMs = 1_059_999;
  expect(await timed.verify(key)).toMatchObject({ id });
  expect(await timed.find(id)).toMatchObject({ id });
  wallMs = 1_060_000;
  await expect((async () => timed.verify(key))()).rejects.toMatchObject({
    code: "unauthorized",
    message: expect.stringContaining("expired"),
  });
  expect(await timed.find(id)).toBeNull();
  // Only the holder of the key is told so.
  expect(await timed.verify(forged(key))).toBeNull();
  const [listed] = (await timed.list()).filter((one) => one.id === id);
  expect(listed).toMatchObject({ expiresAt: 1_060_000 });
  // In another process, too.
  const other = await ApiKeys.open(home, world);
  await expect((async () => other.verify(key))()).rejects.toMatchObject({ code: "unauthorized" });
  expect((await timed.create({ scope: "operator" })).expiresAt).toBeNull();
});

test("a key that was revoked here stops at once", async () => {
  const { id, key } = await keys.create({ scope: "operator" });
  await keys.verify(key);
  await keys.revoke(id);
  expect(await keys.verify(key)).toBeNull();
});
