/**
 * The test stage: an empty backend, and helpers that bring sandboxes into the state that a case begins with. The stage
 * destroys everything it made after the case.
 */

import {
  type ErrorCode,
  type FleetId,
  type Generation,
  isSandlotError,
  type Sandbox,
  type SandboxId,
  type ThreadId,
  type Token,
  type UserId,
} from "@sandlot/contract";
import type {
  Attachment,
  Backend,
  Capability,
  Created,
  CreateSpec,
  Target,
  WorkspaceSpot,
} from "../../backend/backend.ts";
import { type Blueprint, hashBlueprint } from "../../backend/blueprint.ts";
import { type Marker, threadKeyOf } from "../../backend/labels.ts";
import { systemWorld } from "../../world/system-world.ts";
import { sleep } from "../../world/waiting.ts";
import type { SuiteTools } from "../store-suite/stage.ts";

export interface BackendHarness {
  readonly fleetId: FleetId;
  readonly backend: Backend;
  /** The same fleet in another process. */
  peer(): Promise<Backend>;
  /** Another fleet on the same engine, with its id. */
  stranger(): Promise<{ readonly fleetId: FleetId; readonly backend: Backend }>;
  /** Lets the object die by itself, like a crash; not through the backend. */
  kill(ref: Target["ref"]): Promise<void>;
  dispose(): Promise<void>;
}

export interface BackendCase {
  readonly name: string;
  run(stage: BackendStage): Promise<void>;
}

/** The cases of a capability. If the backend does not declare it, `use` must be refused, and the cases do not apply. */
export function withCapability(
  capability: Capability,
  use: (sandbox: Sandbox) => Promise<unknown>,
  cases: readonly BackendCase[],
): readonly BackendCase[] {
  const has = ({ backend }: BackendStage) => backend.capabilities.has(capability);
  return [
    {
      name: `without the capability ${capability} its use is refused, and with it nothing is`,
      run: async (stage) => {
        if (!has(stage)) await stage.rejects(use(await stage.sandbox()), "capability_missing");
      },
    },
    ...cases.map(({ name, run }) => ({
      name,
      run: async (stage: BackendStage) => (has(stage) ? run(stage) : undefined),
    })),
  ];
}

export interface Key {
  readonly user: UserId;
  readonly thread: ThreadId;
}

/** A sandbox that the stage made, with everything needed to reach it. */
export interface Made {
  readonly spec: CreateSpec;
  readonly target: Target;
  readonly created: Created;
}

/** How long a report of the engine may take to arrive. */
const EVENTUALLY_MS = 60_000;
const world = systemWorld();

export class BackendStage {
  readonly backend: Backend;
  readonly blueprint: Blueprint;
  readonly expect: SuiteTools["expect"];
  /** A signal that never fires. */
  readonly signal: AbortSignal = new AbortController().signal;
  readonly #harness: BackendHarness;
  readonly #run = world.randomHex(4);
  #generation = 1_000;
  #names = 0;

  constructor(harness: BackendHarness, blueprint: Blueprint, expect: SuiteTools["expect"]) {
    this.#harness = harness;
    this.backend = harness.backend;
    this.blueprint = blueprint;
    this.expect = expect;
  }

  get fleetId(): FleetId {
    return this.#harness.fleetId;
  }

  peer(): Promise<Backend> {
    return this.#harness.peer();
  }

  stranger(): Promise<{ readonly fleetId: FleetId; readonly backend: Backend }> {
    return this.#harness.stranger();
  }

  kill(made: Made): Promise<void> {
    return this.#harness.kill(made.target.ref);
  }

  nextGeneration(): Generation {
    return ++this.#generation as Generation;
  }

  newKey(): Key {
    const name = `${this.#run}-${++this.#names}`;
    return { user: `user-${name}` as UserId, thread: `thread-${name}` as ThreadId };
  }

  newToken(): Token {
    return world.randomHex(16) as Token;
  }

  /** The spec of a thread's sandbox, or with `null` of a blank. */
  spec(key: Key | null, more: { generation?: Generation; fleetId?: FleetId; blueprint?: Blueprint } = {}): CreateSpec {
    const { generation = this.nextGeneration(), fleetId = this.fleetId, blueprint = this.blueprint } = more;
    const sandboxId = world.randomHex(16) as SandboxId;
    const token = this.newToken();
    const blueprintHash = hashBlueprint(this.backend.name, blueprint);
    const threadKey = key === null ? null : threadKeyOf(key.user, key.thread);
    const labels = { fleet: fleetId, sandboxId, generation, threadKey, blueprintHash };
    const marker = key === null ? null : { ...key, sandboxId, generation, token, blueprint: "default", blueprintHash };
    return { labels, blueprint, marker, generation, token };
  }

  async make(
    key: Key | null = this.newKey(),
    more: Parameters<BackendStage["spec"]>[1] = {},
    backend: Backend = this.backend,
  ): Promise<Made> {
    const spec = this.spec(key, more);
    const created = await backend.create(spec, this.signal);
    const { generation, token, labels } = spec;
    return { spec, created, target: { sandboxId: labels.sandboxId, generation, token, ref: created.ref } };
  }

  attach(target: Target, backend: Backend = this.backend): Promise<Attachment> {
    return backend.attach(target, this.signal);
  }

  /** A new thread's sandbox, ready for use. */
  async sandbox(key?: Key): Promise<Sandbox> {
    return (await this.attach((await this.make(key)).target)).sandbox;
  }

  destroy(made: Made, backend: Backend = this.backend): Promise<void> {
    return backend.destroy(made.target.ref, this.signal);
  }

  /** The spot of a thread's workspace in relation to a sandbox, as of a generation. */
  spot(made: Made, key: Key, generation: Generation = made.spec.generation): WorkspaceSpot {
    return { ...key, sandboxId: made.target.sandboxId, generation, place: made.created.place };
  }

  /** The marker that binding a blank to a thread writes first. */
  marker(made: Made, key: Key, generation: Generation, token: Token = this.newToken()): Marker {
    const { blueprintHash } = made.spec.labels;
    return { ...key, sandboxId: made.target.sandboxId, generation, token, blueprint: "default", blueprintHash };
  }

  /** Makes a home that holds a file, and leaves it without any sandbox. */
  async homeWith(key: Key, file: string, content: string): Promise<void> {
    const made = await this.make(key);
    const { sandbox } = await this.attach(made.target);
    await sandbox.files.write(file, content);
    await this.destroy(made);
  }

  async rejects(promise: Promise<unknown>, code: ErrorCode): Promise<void> {
    const outcome = await promise.then(
      () => "it resolved",
      (error: unknown) => (isSandlotError(error) ? error.code : String(error)),
    );
    this.expect(outcome).toBe(code);
  }

  async rejectsWith(promise: Promise<unknown>, reason: unknown): Promise<void> {
    const outcome = await promise.then(
      () => "it resolved",
      (error: unknown) => error,
    );
    this.expect(outcome).toBe(reason);
  }

  /** Repeats the check until it returns `true`. */
  async eventually(what: string, check: () => boolean | Promise<boolean>): Promise<void> {
    const deadline = world.monotonicMs() + EVENTUALLY_MS;
    while (!(await check())) {
      if (world.monotonicMs() > deadline) throw new Error(`not within ${EVENTUALLY_MS} ms: ${what}`);
      await this.pause(20);
    }
  }

  pause(ms: number): Promise<void> {
    return sleep(world, ms);
  }

  async elapsedMs(work: () => Promise<unknown>): Promise<number> {
    const startedAt = world.monotonicMs();
    await work();
    return world.monotonicMs() - startedAt;
  }

  async refs(backend: Backend = this.backend): Promise<string[]> {
    return (await backend.list({ consistent: true }, this.signal)).map(({ ref }) => ref);
  }

  async clear(): Promise<void> {
    const backend = await this.peer();
    for (const { ref, labels, place } of await backend.list({ consistent: true }, this.signal)) {
      await backend.destroy(ref, this.signal);
      // The owner of a workspace in a slot does not matter here: it must only leave, so that the list is empty.
      const { sandboxId, generation } = labels;
      await backend.workspaces.quarantine({ ...this.newKey(), sandboxId, generation, place });
    }
  }

  async leftovers(): Promise<string[]> {
    return this.refs(await this.peer());
  }
}
