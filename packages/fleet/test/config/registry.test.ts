/**
 * Adding a backend or a store takes its folder and its entry: this test adds a toy of each to a copy of the registry,
 * and configuration, defaults, refusals, identity, doctor and a fleet work with them as usual.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { EngineRef } from "@sandlot/contract";
import { afterAll, describe, expect, it } from "vitest";
import { z } from "zod";
import type { Backend } from "../../src/backend/backend.ts";
import type { BackendEntry } from "../../src/backend/entry.ts";
import { BACKENDS } from "../../src/backends/registry.ts";
import { findingsOf } from "../../src/cli/doctor/doctor-command.ts";
import type { FleetConfig } from "../../src/config/fleet-config.ts";
import { problemsFrom } from "../../src/config/problems.ts";
import { REGISTRY, type Registry } from "../../src/config/registry.ts";
import { resolveSettings } from "../../src/config/resolve-settings.ts";
import { configSchemaOf } from "../../src/config/schema.ts";
import { openBackend, openFleetAndHost } from "../../src/open-fleet.ts";
import type { StoreEntry } from "../../src/store/entry.ts";
import { MemoryStore, newMemoryTables } from "../../src/store/memory/memory-store.ts";
import { STORES } from "../../src/store/registry.ts";
import { systemWorld } from "../../src/world/system-world.ts";

const home = mkdtempSync(join(tmpdir(), "sl-registry-"));
afterAll(() => rmSync(home, { recursive: true, force: true }));

const toySchema = z
  .strictObject({ colour: z.enum(["red", "blue"]).default("red").describe("The colour.") })
  .prefault({})
  .describe("The toy backend.");
type ToyConfig = z.output<typeof toySchema>;

/** A remote engine: no workspaces on this host, its own limits. */
const toyBackend: BackendEntry<ToyConfig, ToyConfig> = {
  name: "toy",
  about: "a toy",
  configSchema: toySchema,
  endsWithProcess: false,
  settings: (completed) => completed,
  blueprintKey: ({ colour }) => `toy ${colour}`,
  canLimit: () => false,
  experimental: () => ["toy.colour is a toy"],
  async open(context) {
    const made = await BACKENDS.memory.open({ ...context, section: null });
    const toy: Partial<Backend> = { name: "toy", engineId: `toy-${context.section.colour}` };
    return new Proxy(made, {
      get(target, name) {
        if (Object.hasOwn(toy, name)) return Reflect.get(toy, name);
        const member: unknown = Reflect.get(target, name, target);
        return typeof member === "function" ? member.bind(target) : member;
      },
    });
  },
  async doctor({ section, fleet, trial }) {
    const said: string[] = [];
    await trial(async (sandbox) => void said.push((await sandbox.exec("echo tried")).stdout.trim()));
    return [{ name: "toy", status: "ok", detail: `${section.colour} in ${fleet.fleetId}: ${said.join()}` }];
  },
  owns: (ref) => ref.startsWith("toy:"),
};

let opened = 0;
const toyStore: StoreEntry<
  { readonly address?: string | undefined },
  { readonly type: "toy"; readonly address: string }
> = {
  name: "toy",
  about: "a toy",
  keys: { address: z.string().min(1, "must not be empty").optional().describe("Its address.") },
  resolve({ address }, { tell }) {
    if (address === undefined) tell("address", { problem: "must be set with the store type toy" });
    return { type: "toy", address: address ?? "" };
  },
  describe: ({ address }) => `toy at ${address}`,
  async open(_, world) {
    opened += 1;
    return new MemoryStore(newMemoryTables(world));
  },
  exists: () => true,
  doctor: async ({ address }) => [{ name: "store", status: "ok", detail: `toy at ${address}` }],
};

const registry: Registry = {
  backends: { ...REGISTRY.backends, toy: toyBackend },
  stores: { ...REGISTRY.stores, toy: toyStore },
};

const TOYS = { home, backend: "toy", store: { type: "toy", address: "toy://1" } } as unknown as FleetConfig;
const resolve = (config: unknown) =>
  resolveSettings(config, {}, undefined, registry) as unknown as Record<string, unknown>;
const problems = (config: unknown) =>
  problemsFrom(() => resolve(config)).map(({ path, problem }) => `${path} ${problem}`);

describe("a backend and a store that are added to the registry", () => {
  it("have their sections, defaults and descriptions in the configuration", () => {
    expect(resolve(TOYS)).toMatchObject({
      backend: "toy",
      toy: { colour: "red" },
      store: { type: "toy", address: "toy://1" },
    });
    const schema = z.toJSONSchema(configSchemaOf(registry), { io: "input", unrepresentable: "any" });
    expect(schema.properties).toMatchObject({
      backend: {
        enum: ["local", "docker", "remote", "memory", "toy"],
        description: expect.stringContaining("`toy`: a toy."),
      },
      toy: { properties: { colour: { default: "red", description: "The colour." } } },
      store: {
        properties: { type: { enum: [...Object.keys(STORES), "toy"] }, address: { description: "Its address." } },
      },
    });
  });

  it("are refused with the path of the key, as others are", () => {
    expect(problems({ ...TOYS, toy: { colour: "green" } })).toEqual([
      expect.stringContaining("toy.colour must be one of red, blue"),
    ]);
    expect(problems({ ...TOYS, toy: { color: "red" } })).toEqual([expect.stringContaining("toy.color this key")]);
    expect(problems({ ...TOYS, store: { type: "toy" } })).toEqual([
      "store.address must be set with the store type toy",
    ]);
    expect(problems({ home, store: { type: "sqlite", address: "toy://1" } })).toEqual([
      "store.address means nothing with the store type sqlite; remove it, or set store.type to toy",
    ]);
    expect(problems({ ...TOYS, store: { type: "toy", address: "toy://1", path: "/tmp/x" } })).toEqual([
      "store.path means nothing with the store type toy; remove it, or set store.type to sqlite",
    ]);
  });

  it("part blanks of sandboxes that differ, and have no default limits where they cannot limit", () => {
    const hashOf = (colour: string) =>
      resolveSettings({ ...TOYS, toy: { colour } }, {}, undefined, registry).blueprints.default;
    expect(hashOf("red")?.hash).not.toBe(hashOf("blue")?.hash);
    expect(hashOf("red")?.blueprint.limits).toEqual({});
  });

  it("open a fleet", async () => {
    const { fleet, hostWorkspaces } = await openFleetAndHost(TOYS, { registry });
    try {
      await using lease = await fleet.acquire({ thread: "t" });
      expect((await lease.sandbox.exec("echo hello")).stdout).toBe("hello\n");
      expect([opened, hostWorkspaces]).toEqual([1, null]);
    } finally {
      await fleet.close({ destroy: true });
    }
  });

  it("name their engine, and are known by references to the backend that is configured", async () => {
    const ref = "toy:1" as EngineRef;
    const settings = resolveSettings(TOYS, {}, undefined, registry);
    const backend = await openBackend(settings, systemWorld(), registry);
    expect([backend.name, backend.engineId]).toEqual(["toy", "toy-red"]);
    await backend.close();
    let seen: unknown;
    const asking: BackendEntry<unknown, unknown> = {
      ...(REGISTRY.backends.memory as BackendEntry),
      async open(context) {
        seen = [context.others.madeBy(ref), context.others.madeBy("nobody's" as EngineRef)];
        seen = [...(seen as unknown[]), await context.others.use(ref, async ({ engineId }) => engineId)];
        return BACKENDS.memory.open({ ...context, section: null });
      },
    };
    const other = { ...registry, backends: { ...registry.backends, memory: asking } };
    const from = resolveSettings({ ...TOYS, backend: "memory" }, {}, undefined, other);
    await (await openBackend(from, systemWorld(), other)).close();
    expect(seen).toEqual(["toy", null, "toy-red"]);
  });

  it("say for themselves what doctor prints, with a trial sandbox of which nothing is left", async () => {
    const settings = resolveSettings(TOYS, {}, undefined, registry);
    const found = await findingsOf(settings, {}, registry);
    expect(found).toEqual(
      expect.arrayContaining([
        { name: "store", status: "ok", detail: "toy at toy://1" },
        { name: "toy", status: "ok", detail: `red in ${settings.fleetId}: tried` },
        { name: "experimental", status: "warn", detail: "toy.colour is a toy" },
      ]),
    );
  });
});

it("every entry stands under its own name", () => {
  for (const [name, entry] of Object.entries({ ...BACKENDS })) expect(entry.name).toBe(name);
  for (const [name, entry] of Object.entries({ ...STORES })) expect(entry.name).toBe(name);
});

it("a setting without effect inside is not in a blueprint's hash, which earlier releases have written too", () => {
  const docker = (more: object) => {
    const { docker: section } = resolveSettings({ home, docker: more }, {});
    return BACKENDS.docker.blueprintKey(section);
  };
  expect(docker({})).toBe('["docker","sandlot/sandbox:1",null,"auto",null,59999,59999,true,[]]');
  expect(docker({ pull: "never", host: "unix:///x" })).toBe(docker({}));
  expect(docker({ engine: "apple-container" })).toContain('["docker","apple-container",');
  expect([BACKENDS.local.blueprintKey(), BACKENDS.memory.blueprintKey()]).toEqual(["local", "memory"]);
});
