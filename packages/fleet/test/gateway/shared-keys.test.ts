import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandlotError } from "@sandlot/contract";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { SharedEntries } from "../../src/fleet.ts";
import { ApiKeys } from "../../src/gateway/keys/api-keys.ts";
import { ensureOperatorKey, readOperatorKey } from "../../src/gateway/keys/operator-key.ts";
import { MemoryEntries } from "../../src/store/memory/memory-entries.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import { VirtualTime } from "../support/virtual-time.ts";

/** Entries of a store that can be cut off. */
class CutEntries implements SharedEntries {
  readonly #entries: SharedEntries;
  isCut = false;
  reads = 0;

  constructor(entries: SharedEntries) {
    this.#entries = entries;
  }
  async get(name: string) {
    this.reads += 1;
    this.#check();
    return this.#entries.get(name);
  }
  async list(prefix: string) {
    this.reads += 1;
    this.#check();
    return this.#entries.list(prefix);
  }
  async put(name: string, body: string, expected: number | null) {
    this.#check();
    return this.#entries.put(name, body, expected);
  }
  async delete(name: string, expected: number) {
    this.#check();
    return this.#entries.delete(name, expected);
  }
  #check(): void {
    if (this.isCut)
      throw new SandlotError("store_unavailable", { operation: "entries", problem: "cut off", retryAfterMs: 100 });
  }
}

describe("API keys in a shared store", () => {
  let root = "";
  let made = 0;
  beforeAll(async () => {
    root = await mkdtemp(join(tmpdir(), "sandlot-shared-keys-"));
  });
  afterAll(() => rm(root, { recursive: true, force: true }));
  const newHome = () => {
    made += 1;
    return join(root, `home-${made}`);
  };

  /** Two gateways' keys over one store, in virtual time. */
  async function two() {
    const time = new VirtualTime();
    const shared = new MemoryEntries();
    const entries = [new CutEntries(shared), new CutEntries(shared)] as const;
    const [a, b] = [
      await ApiKeys.open(newHome(), time.newWorld(), entries[0]),
      await ApiKeys.open(newHome(), time.newWorld(), entries[1]),
    ];
    return { time, shared, entries, a, b };
  }

  it("a key that one gateway made works at another, and only its hash is in the store", async () => {
    const { a, b, shared } = await two();
    const { key, id } = await a.create({ scope: "user", user: "alice", label: "laptop" });
    expect(await b.verify(key)).toMatchObject({ id, scope: "user", user: "alice" });
    expect(await b.verify(`${key.slice(0, -1)}${key.endsWith("0") ? "1" : "0"}`)).toBe(null);
    expect((await b.list()).map((one) => one.id)).toEqual([id]);
    const stored = (await shared.list("")).map(({ body }) => body).join();
    expect(stored).toContain(id);
    expect(stored).not.toContain(key.slice(-48));
  });

  it("a key that one gateway revoked stops working at another within a second, also in use", async () => {
    const { a, b, time } = await two();
    const { key, id } = await a.create({ scope: "platform" });
    expect(await b.verify(key)).not.toBe(null);
    for (let turn = 0; turn < 3; turn += 1) {
      await time.advance(600);
      expect(await b.verify(key)).not.toBe(null);
    }
    expect(await a.revoke(id)).toBe(true);
    expect(await a.revoke(id)).toBe(false);
    await time.advance(1_000);
    expect(await b.verify(key)).toBe(null);
  });

  it("a key in use is read in the background: a request waits for no store", async () => {
    const { a, b, entries, time } = await two();
    const { key } = await a.create({ scope: "platform" });
    await b.verify(key);
    for (let turn = 0; turn < 20; turn += 1) {
      await time.advance(600);
      expect(b.verify(key), `turn ${turn}`).not.toBeInstanceOf(Promise);
    }
    expect(entries[1].reads).toBeLessThanOrEqual(21);
  });

  it("many keys in use are read together, and a revoked one among them stops working", async () => {
    const { a, b, entries, time } = await two();
    const keys = [];
    for (let turn = 0; turn < 100; turn += 1) keys.push(await a.create({ scope: "platform" }));
    for (const { key } of keys) expect(await b.verify(key)).not.toBe(null);
    const before = entries[1].reads;
    for (let turn = 0; turn < 10; turn += 1) {
      await time.advance(600);
      for (const { key } of keys) expect(b.verify(key), `turn ${turn}`).not.toBeInstanceOf(Promise);
    }
    await time.settle();
    expect(entries[1].reads - before).toBeLessThanOrEqual(10 * 8);
    const [revoked] = keys;
    await a.revoke(revoked?.id ?? "");
    await time.advance(600);
    for (const { key } of keys) await b.verify(key);
    await time.advance(400);
    expect(await b.verify(revoked?.key ?? "")).toBe(null);
    expect(await b.verify(keys[1]?.key ?? "")).not.toBe(null);
  });

  it("a store that does not answer for fifteen seconds stops no known key, and then every key", async () => {
    const { a, b, entries, time } = await two();
    const { key } = await a.create({ scope: "platform" });
    const other = await a.create({ scope: "platform" });
    expect(await b.verify(key)).not.toBe(null);
    entries[1].isCut = true;
    await time.advance(14_000);
    expect(await b.verify(key)).not.toBe(null);
    await expect(b.verify(other.key)).rejects.toMatchObject({ code: "store_unavailable" });
    await time.advance(1_500);
    await expect(b.verify(key)).rejects.toMatchObject({ code: "store_unavailable" });
    entries[1].isCut = false;
    expect(await b.verify(key)).not.toBe(null);
  });

  it("keys of a home's files are not keys of the store until they are imported; then they are moved", async () => {
    const home = newHome();
    const world = systemWorld();
    const files = await ApiKeys.open(home, world);
    await ensureOperatorKey(files, home, world);
    const { key, id } = await files.create({ scope: "user", user: "alice" });
    const operator = (await readOperatorKey(home)) ?? "";

    const entries = new MemoryEntries();
    const shared = await ApiKeys.open(home, world, entries);
    const elsewhere = await ApiKeys.open(newHome(), world, entries);
    expect(await shared.verify(key)).toBe(null);
    expect(await entries.list("")).toEqual([]);
    // The way in: the operator key of this home, at this home only.
    expect(await shared.verify(operator)).toMatchObject({ scope: "operator" });
    expect(await elsewhere.verify(operator)).toBe(null);
    expect(await shared.importableCount()).toBe(2);

    expect((await shared.importFromHome()).length).toBe(2);
    expect(await shared.importableCount()).toBe(0);
    expect((await readdir(join(home, "keys"))).filter((name) => name.endsWith(".json"))).toEqual([]);
    expect(await elsewhere.verify(key)).toMatchObject({ id });
    expect(await elsewhere.verify(operator)).toMatchObject({ scope: "operator" });
    // A revocation elsewhere reaches the home's own operator key.
    const [operatorId = ""] = (await shared.list()).filter(({ scope }) => scope === "operator").map((one) => one.id);
    expect(await elsewhere.revoke(operatorId)).toBe(true);
    const later = await ApiKeys.open(home, world, entries);
    expect(await later.verify(operator)).toBe(null);
    await expect(files.importFromHome()).rejects.toMatchObject({ code: "invalid_request" });
  });

  it("the operator key of a home that was not imported is revoked at its own gateway", async () => {
    const home = newHome();
    const world = systemWorld();
    await ensureOperatorKey(await ApiKeys.open(home, world), home, world);
    const operator = (await readOperatorKey(home)) ?? "";
    const shared = await ApiKeys.open(home, world, new MemoryEntries());
    const [only] = await shared.list();
    expect(await shared.revoke(only?.id ?? "")).toBe(true);
    expect(await shared.verify(operator)).toBe(null);
    expect(await shared.list()).toEqual([]);
  });

  it("a full store refuses a key with an error that says so", async () => {
    const keys = await ApiKeys.open(newHome(), systemWorld(), new MemoryEntries(1));
    await keys.create({ scope: "platform" });
    await expect(keys.create({ scope: "platform" })).rejects.toMatchObject({ code: "invalid_request" });
  });
});
