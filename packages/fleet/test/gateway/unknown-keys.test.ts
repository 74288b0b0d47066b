/** What requests without a valid key or AIO URL may cost the store. */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandlotError } from "@sandlot/contract";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LOOK_UPS_MAX } from "../../src/gateway/guards/look-up-limit.ts";
import { ApiKeys } from "../../src/gateway/keys/api-keys.ts";
import { AioLinks, aioAddress, aioPath } from "../../src/gateway/previews/aio-links.ts";
import { PreviewLinks } from "../../src/gateway/previews/links.ts";
import { MemoryEntries } from "../../src/store/memory/memory-entries.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { openStage } from "./support/stage.ts";

const TRIES = 50;
const FAILURES = 5;
const LATER = "ffffffffffff";
const hex = (number: number, length: number) => number.toString(16).padStart(length, "0");
const unknownKey = (number: number) => `slk_${hex(number, 12)}_${hex(number, 48)}`;
const unknownPath = (number: number) => aioPath(`${hex(number, 24)}${LATER}${hex(number, 12)}`, hex(number, 48));

/** Entries that count reads of a kind, and that answer them when they are let go. */
class HeldEntries extends MemoryEntries {
  reads = 0;
  #held: Promise<void> | null = null;
  #letGo: () => void = () => undefined;

  hold(): void {
    this.#held = new Promise((resolve) => (this.#letGo = resolve));
  }
  letGo(): void {
    this.#held = null;
    this.#letGo();
  }
  override async get(name: string) {
    if (!/^(key|aio)\//.test(name)) return super.get(name);
    this.reads += 1;
    await this.#held;
    return super.get(name);
  }
}

/** Entries that count lists of keys. */
class ListedEntries extends MemoryEntries {
  lists = 0;

  override async list(prefix: string) {
    if (prefix.startsWith("key/")) this.lists += 1;
    return super.list(prefix);
  }
}

const outcomeOf = (asked: Promise<unknown>) =>
  asked.then(
    (found) => (found === null ? "unknown" : "valid"),
    (error: unknown) => (error instanceof SandlotError ? error.code : String(error)),
  );

let home = "";
beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), "sandlot-unknown-keys-"));
});
afterAll(() => rm(home, { recursive: true, force: true }));

describe("unknown keys and AIO URLs at the same time", () => {
  it("keys: few are looked up, the others are refused, and a known key is not", async () => {
    const entries = new HeldEntries();
    const keys = await ApiKeys.open(home, systemWorld(), entries);
    const { key } = await keys.create({ scope: "operator" });
    expect(await keys.verify(key)).not.toBeNull();
    const before = entries.reads;
    entries.hold();
    const asked = Array.from({ length: TRIES }, (_, number) =>
      outcomeOf(Promise.resolve(keys.verify(unknownKey(number)))),
    );
    const joined = outcomeOf(Promise.resolve(keys.verify(unknownKey(0))));
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(entries.reads - before).toBe(LOOK_UPS_MAX);
    expect(await keys.verify(key)).not.toBeNull();
    entries.letGo();
    const outcomes = await Promise.all(asked);
    expect(outcomes.filter((outcome) => outcome === "unknown")).toHaveLength(LOOK_UPS_MAX);
    expect(outcomes.filter((outcome) => outcome === "rate_limited")).toHaveLength(TRIES - LOOK_UPS_MAX);
    expect(await joined).toBe("unknown");
    expect(await keys.verify(unknownKey(TRIES))).toBeNull();
  });

  it("AIO URLs: few are looked up, the others are refused, and a known URL is not", async () => {
    const entries = new HeldEntries();
    const world = systemWorld();
    const links = await AioLinks.open(home, await PreviewLinks.open(home, world, entries), world, entries);
    const use = (path: string) => {
      const address = aioAddress(path);
      if (address === null) throw new Error(`${path} is no address`);
      return outcomeOf(links.use(address, () => undefined));
    };
    const made = await links.create({ user: "alice", thread: "a" } as never, "k", 60_000);
    const path = aioPath(made.linkId, made.secret);
    expect(await use(path)).toBe("valid");
    const before = entries.reads;
    entries.hold();
    const asked = Array.from({ length: TRIES }, (_, number) => use(unknownPath(number)));
    const valid = use(path);
    // Knowing the id of a URL is not knowing the URL.
    const forged = use(aioPath(made.linkId, hex(1, 48)));
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(entries.reads - before).toBe(LOOK_UPS_MAX + 1);
    entries.letGo();
    expect((await Promise.all(asked)).filter((outcome) => outcome === "unknown")).toHaveLength(LOOK_UPS_MAX);
    expect([await valid, await forged]).toEqual(["valid", "rate_limited"]);
    expect(await use(unknownPath(TRIES))).toBe("unknown");
  });
});

describe("an address whose failures are used up", () => {
  it("still admits a valid key that this gateway has never seen, and lists the keys once for all others", async () => {
    const entries = new ListedEntries();
    const settings = { rate: { perAddressFailuresPerMinute: FAILURES } };
    // Another gateway of the store makes the key.
    const { key } = await (await ApiKeys.open(home, systemWorld(), entries)).create({ scope: "operator" });
    const stage = await openStage({ settings, more: { entries } });
    try {
      const alice = await stage.user("alice");
      const ofKey = async (text: string) => (await alice.as(text).call("GET", "/v1/threads")).status;
      for (let number = 0; number < FAILURES; number += 1) expect(await ofKey(unknownKey(number))).toBe(401);
      const before = entries.lists;
      expect(await Promise.all([ofKey(unknownKey(FAILURES)), ofKey(unknownKey(FAILURES + 1))])).toEqual([429, 429]);
      expect(await ofKey(key)).toBe(200);
      expect(entries.lists - before).toBeLessThanOrEqual(2);
    } finally {
      await stage.done();
    }
  });

  it("causes no look-up any more, and requests with a known key or URL go on", async () => {
    const entries = new HeldEntries();
    const settings = { rate: { perAddressFailuresPerMinute: FAILURES } };
    const stage = await openStage({ settings, more: { entries } });
    try {
      const alice = await stage.user("alice");
      const { url } = await alice.ask<{ url: string }>(201, "POST", "/v1/threads/a/aio", { json: {} });
      const ofUrl = async (address: string) => (await fetch(`${address}/v1/sandbox`)).status;
      const ofKey = async (key: string) => (await alice.as(key).call("GET", "/v1/threads")).status;
      // This backend serves no AIO API; the URL itself is valid.
      expect(await ofUrl(url)).toBe(501);
      for (let number = 0; number < FAILURES; number += 1) {
        expect(await ofKey(unknownKey(number))).toBe(401);
        expect(await ofUrl(`${stage.gateway.previewUrl}${unknownPath(number)}`)).toBe(401);
      }
      const before = entries.reads;
      expect(await ofKey(unknownKey(FAILURES))).toBe(429);
      expect(await ofUrl(`${stage.gateway.previewUrl}${unknownPath(FAILURES)}`)).toBe(429);
      expect(entries.reads).toBe(before);
      expect(await ofKey(alice.key)).toBe(200);
      expect(await ofUrl(url)).toBe(501);
    } finally {
      await stage.done();
    }
  });
});
