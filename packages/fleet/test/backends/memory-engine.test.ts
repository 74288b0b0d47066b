/** The memory engine beyond the backend contract: it is shared by home, tests can make it fail, and it ends empty. */

import type {
  BlueprintHash,
  EngineRef,
  FleetId,
  Generation,
  SandboxId,
  ThreadId,
  Token,
  UserId,
} from "@sandlot/contract";
import { describe, expect, it } from "vitest";
import type { CreateSpec, EngineEvent } from "../../src/backend/backend.ts";
import { createMemoryBackend } from "../../src/backends/memory/backend.ts";
import { MemoryEngine } from "../../src/backends/memory/engine.ts";
import { systemWorld } from "../../src/world/system-world.ts";

const world = systemWorld();
const fleetId = "fleet" as FleetId;
const signal = new AbortController().signal;

describe("the engine in memory", () => {
  it("is one per home, and finds its sandboxes when the home is opened again", async () => {
    const home = `/home/${world.randomHex(4)}`;
    const first = createMemoryBackend({ fleetId, engine: MemoryEngine.shared(home), world });
    const { ref } = await first.create(specOf("one"), signal);
    await first.close();
    const again = createMemoryBackend({ fleetId, engine: MemoryEngine.shared(home), world });
    expect((await again.list({ consistent: true }, signal)).map((object) => object.ref)).toEqual([ref]);
    expect(MemoryEngine.shared(`${home}/other`).objects()).toEqual([]);
  });

  it("drops events while they are suspended, and then asks listeners to look", async () => {
    const { engine, backend } = open();
    const heard: EngineEvent[] = [];
    backend.watch((event) => heard.push(event));
    const { ref } = await backend.create(specOf("one"), signal);
    const resume = engine.suspendEvents();
    engine.kill(ref);
    await Promise.resolve();
    expect(heard).toEqual([]);
    resume();
    resume();
    await Promise.resolve();
    expect(heard).toEqual([{ type: "resync" }]);
  });

  it("reports a death once, and no unknown one", async () => {
    const { engine, backend } = open();
    const heard: EngineEvent[] = [];
    backend.watch((event) => heard.push(event));
    const { ref } = await backend.create(specOf("one"), signal);
    engine.kill(ref);
    engine.kill(ref);
    engine.kill("unknown" as EngineRef);
    await backend.destroy(ref, signal);
    await Promise.resolve();
    expect(heard).toEqual([{ type: "died", ref, sandboxId: "one" }]);
  });

  it("shows every object of every fleet with its place and generation", async () => {
    const { engine, backend } = open();
    await backend.create(specOf("one"), signal);
    await backend.create({ ...specOf("two"), marker: null }, signal);
    expect(engine.objects().map(({ place, generation, liveness }) => [place, generation, liveness])).toEqual([
      ["home", 5, "alive"],
      ["slot:two-5", 5, "alive"],
    ]);
  });

  it("keeps homes, and nothing else, of what was destroyed", async () => {
    const { engine, backend } = open();
    const { ref } = await backend.create(specOf("one"), signal);
    const blank = await backend.create({ ...specOf("two"), marker: null }, signal);
    expect(engine.leftovers()).toEqual({ homes: 1, slots: 1, markers: 1, quarantined: 0 });
    await backend.destroy(ref, signal);
    await backend.destroy(blank.ref, signal);
    expect(engine.leftovers()).toEqual({ homes: 1, slots: 0, markers: 0, quarantined: 0 });
  });

  it("does not pull a workspace from under processes that use it", async () => {
    const { backend } = open();
    const { place } = await backend.create({ ...specOf("one"), marker: null }, signal);
    const key = { user: "user" as UserId, thread: "thread" as ThreadId };
    const spot = { ...key, sandboxId: "one" as SandboxId, generation: 6 as Generation, place };
    await backend.workspaces.makeIn(spot);
    for (const step of ["moveHome", "purge", "quarantine"] as const) {
      await expect(backend.workspaces[step](spot)).rejects.toMatchObject({ code: "sandbox_in_use" });
    }
    expect(await backend.workspaces.look(spot)).toEqual({ home: false, slot: true, stale: false });
  });

  it("refuses calls of a backend that was closed, and of an attachment that was closed", async () => {
    const { backend } = open();
    const { ref } = await backend.create(specOf("one"), signal);
    const target = { ref, sandboxId: "one" as SandboxId, generation: 5 as Generation, token: "token" as Token };
    const attachment = await backend.attach(target, signal);
    await backend.close();
    await attachment.closed;
    await expect(attachment.sandbox.exec("true")).rejects.toMatchObject({ code: "sandbox_unreachable" });
    await expect(backend.probe(ref, signal)).rejects.toMatchObject({ code: "fleet_closed" });
  });
});

function open() {
  const engine = new MemoryEngine({ world });
  return { engine, backend: createMemoryBackend({ fleetId, engine, world }) };
}

function specOf(name: string): CreateSpec {
  const sandboxId = name as SandboxId;
  const credentials = { generation: 5 as Generation, token: "token" as Token };
  const blueprintHash = "hash" as BlueprintHash;
  const key = { user: "user" as UserId, thread: name as ThreadId };
  return {
    ...credentials,
    labels: { fleet: fleetId, sandboxId, generation: credentials.generation, threadKey: null, blueprintHash },
    blueprint: { environment: {}, limits: {}, mounts: [], network: { mode: "none", allow: [] } },
    marker: { ...key, ...credentials, sandboxId, blueprint: "default", blueprintHash },
  };
}
