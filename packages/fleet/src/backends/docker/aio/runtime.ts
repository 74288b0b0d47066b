/**
 * Containers whose image has its own server: connections, readiness, access and activity.
 *
 *   transport `socket`   the container's own loopback (`namespace-connector.ts`): no network, no published port
 *   transport `port`     at the port that the engine has published
 *
 * Invariants
 * - Only the present generation and token reach a sandbox (`records.ts`): on attach, and before every call.
 * - Connections end with their attachment, with their container or with the backend, whichever comes first, also when
 *   another step fails.
 */

import { isSandlotError, SandlotError } from "@sandlot/contract";
import type { Activity, Attachment, Credentials, EngineEvent, Target } from "../../../backend/backend.ts";
import {
  ActivityReader,
  type AioAddress,
  AioAttachment,
  AioWire,
  awaitServer,
  checkServer,
  KeyIgnored,
} from "../../../compat/aio/index.ts";
import { ServerAway } from "../../../compat/aio/wire/answers.ts";
import { NoAnswer } from "../../../compat/aio/wire/wire.ts";
import { type Account, egressAccountOf } from "../../../host/accounts/index.ts";
import type { ObjectName } from "../../../host/layout.ts";
import { identify } from "../../../host/process-table.ts";
import type { World } from "../../../world/world.ts";
import { unusable } from "../container/images.ts";
import { publishedPort } from "../container/published-port.ts";
import type { Engine } from "../engine/engine.ts";
import type { ContainerLiveness } from "../liveness.ts";
import type { ContainerObject, ContainerObjects } from "../objects/container-objects.ts";
import { NamespaceConnector } from "./namespace-connector.ts";
import { AIO_PORT } from "./options.ts";
import type { AioRecord, AioRecords } from "./records.ts";

export interface AioParts {
  readonly world: World;
  readonly engine: Engine;
  readonly objects: ContainerObjects;
  readonly records: AioRecords;
  readonly liveness: ContainerLiveness;
  readonly account: Account;
  /** The host on which published ports are reached. */
  readonly publishHost: string;
  /** Listens to the engine's events, until the returned function is called. */
  readonly watch: (listener: (event: EngineEvent) => void) => () => void;
}

interface Held {
  readonly attachment: AioAttachment;
  readonly ref: Target["ref"];
}

const RETRY_AFTER_MS = 500;

export class AioRuntime {
  readonly #parts: AioParts;
  readonly #held = new Set<Held>();
  readonly #activity: ActivityReader;
  #unwatch: (() => void) | null = null;

  constructor(parts: AioParts) {
    this.#parts = parts;
    this.#activity = new ActivityReader(parts.world);
  }

  get records(): AioRecords {
    return this.#parts.records;
  }

  /** Resolves when the server of a container that was just started has responded. */
  async ready(name: ObjectName, image: string, signal: AbortSignal): Promise<void> {
    const object = await this.#parts.objects.get(name);
    const record = await this.#parts.records.get(name);
    if (object === null || record === null) throw new SandlotError("sandbox_not_found", { id: name });
    const wire = new AioWire({ address: await this.#address(object), apiKey: record.apiKey });
    try {
      await awaitServer(wire, this.#parts.world, signal);
    } catch (error) {
      if (isSandlotError(error, "capability_missing"))
        throw unusable(image, `its server has no ${error.details.capability}; AIO has it since 1.9.3`, error);
      if (error instanceof KeyIgnored)
        throw unusable(image, `its server works without SANDBOX_API_KEY (${error.message})`, error);
      throw error;
    } finally {
      wire.close();
    }
  }

  /**
   * Rejects with `stale_generation`, or with `sandbox_unreachable` when there is no response: a probe decides whether
   * it is dead.
   */
  async attach(target: Target, name: ObjectName, signal: AbortSignal): Promise<Attachment> {
    const { world, liveness } = this.#parts;
    const { object, record } = await this.#known(target, name);
    await this.#checkCurrent(target, object);
    const wire = await this.#wire(target, object, record);
    try {
      await checkServer(wire, world, signal);
    } catch (error) {
      wire.close();
      signal.throwIfAborted();
      throw unreachable(target, error);
    }
    const attachment = new AioAttachment(
      wire,
      world,
      { ...target, environment: record.environment },
      {
        // A sandbox that was made for a thread is never bound to another.
        checkCurrent: async () => (object.record.place === "home" ? undefined : this.#checkCurrent(target, object)),
        liveness: () => liveness.probe(target.ref),
      },
    );
    this.#hold({ attachment, ref: target.ref });
    return attachment;
  }

  /** Idempotent, as `Backend.rebind` is. */
  async rebind(target: Target, from: Credentials, name: ObjectName): Promise<void> {
    const { object } = await this.#known(target, name);
    if ((await this.#parts.liveness.probe(target.ref)) !== "alive")
      throw unreachable(target, new NoAnswer("it is not alive"));
    if (!isSame(from, object.record.credentials)) throw stale(target);
    if (!isSame(await this.#parts.records.bind(name, target), target)) throw stale(target);
  }

  async activity(target: Pick<Target, "sandboxId" | "generation">, object: ContainerObject, signal: AbortSignal) {
    const { record } = await this.#known(target, object.name);
    const wire = await this.#wire(target, object, record);
    try {
      return (await this.#activity.read(object.name, wire, signal)) satisfies Activity;
    } catch (error) {
      signal.throwIfAborted();
      throw unreachable(target, error);
    } finally {
      wire.close();
    }
  }

  /** A container that this process destroyed is dead, also when the engine emits no event. */
  forget(name: ObjectName, ref: Target["ref"]): void {
    this.#activity.forget(name);
    this.#lose(ref);
  }

  #lose(ref: Target["ref"]): void {
    for (const held of this.#held) if (held.ref === ref) held.attachment.lose();
  }

  #hold(held: Held): void {
    this.#held.add(held);
    this.#unwatch ??= this.#parts.watch((event) => this.#hear(event));
    void held.attachment.closed.then(() => {
      this.#held.delete(held);
      if (this.#held.size > 0) return;
      this.#unwatch?.();
      this.#unwatch = null;
    });
  }

  #hear(event: EngineEvent): void {
    if (event.type === "died") this.#lose(event.ref);
    else if (event.type === "resync") for (const held of this.#held) void this.#look(held);
  }

  /**
   * A death may have been missed. A failed request is not a death, and the next break of the events leads here again.
   */
  async #look({ attachment, ref }: Held): Promise<void> {
    if ((await this.#parts.liveness.probe(ref).catch(() => "unknown")) === "dead") attachment.lose();
  }

  async #known(target: Pick<Target, "sandboxId">, name: ObjectName) {
    const [object, record] = [await this.#parts.objects.get(name), await this.#parts.records.get(name)];
    if (object === null || record === null) throw unreachable(target, new NoAnswer("it is not written down"));
    return { object, record };
  }

  async #checkCurrent(target: Credentials & Pick<Target, "sandboxId">, object: ContainerObject): Promise<void> {
    const current = (await this.#parts.records.bound(object.name)) ?? object.record.credentials;
    if (!isSame(current, target)) throw stale(target);
  }

  async #wire(target: Pick<Target, "sandboxId">, object: ContainerObject, { apiKey }: AioRecord): Promise<AioWire> {
    try {
      return new AioWire({ address: await this.#address(object), apiKey });
    } catch (error) {
      throw unreachable(target, error);
    }
  }

  async #address({ record, container }: ContainerObject): Promise<AioAddress> {
    const { engine, publishHost } = this.#parts;
    if (container === null) throw new NoAnswer("it is not made yet");
    if (record.transport === "socket") return this.#connector(container.containerId, record.account);
    const port = container.hostPort ?? (await publishedPort(engine, container.containerId, AIO_PORT));
    if (port === null) throw new NoAnswer("the engine has published no port for it");
    return { url: `http://${publishHost.includes(":") ? `[${publishHost}]` : publishHost}:${port}` };
  }

  async #connector(containerId: string, own: Account | null): Promise<AioAddress> {
    const { engine, world, account } = this.#parts;
    const firstProcess = async () => {
      const state = (await engine.inspect(containerId))?.State;
      return state?.Status === "running" || state?.Status === "paused" ? (identify(state.Pid ?? 0) ?? null) : null;
    };
    const before = await firstProcess();
    if (before === null) throw new NoAnswer("the container does not run");
    // Another account than the sandbox's.
    const apart = egressAccountOf(own ?? account);
    const connector = await NamespaceConnector.open({ pid: before.pid, port: AIO_PORT, account: apart, world });
    // Had it ended meanwhile, its pid could belong to another process.
    const now = identify(before.pid);
    if (now?.startTime === before.startTime)
      return { connect: () => connector.connect(), close: () => connector.close() };
    connector.close();
    throw new NoAnswer("the container has ended meanwhile");
  }
}

function isSame(a: Credentials, b: Credentials): boolean {
  return a.generation === b.generation && a.token === b.token;
}

function stale({ sandboxId, generation }: Pick<Target, "sandboxId" | "generation">): SandlotError {
  return new SandlotError("stale_generation", { sandboxId, generation, current: null });
}

function unreachable({ sandboxId }: Pick<Target, "sandboxId">, error: unknown): unknown {
  if (!(error instanceof NoAnswer) && !(error instanceof ServerAway)) return error;
  const details = { sandboxId, problem: error.message, retryAfterMs: RETRY_AFTER_MS };
  return new SandlotError("sandbox_unreachable", details, { cause: error });
}
