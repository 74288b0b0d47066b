/**
 * Reaching the daemon of a container: attaching, binding a blank, and what it means when nobody answers.
 *
 *   attach   known to be paused? unpaused ─▶ connected (or held since it was bound) ─▶ way out and disk budget in place
 *   rebind   connections made ahead ─▶ bound and held in one step ─▶ kept for the attach that follows
 *
 * Invariants
 * - The engine is not asked on the way to a daemon that answers.
 * - Whoever cannot be reached is asked for in the engine: what is dead there is lost, what lives may be restarting.
 */

import { existsSync } from "node:fs";
import { type EngineRef, isSandlotError, type Sandbox, type SandboxId, SandlotError } from "@sandlot/contract";
import type { Attachment, CreateSpec, Credentials, Target } from "../../backend/backend.ts";
import { egressPath, type Layout, type ObjectName } from "../../host/layout.ts";
import { DaemonAttachment } from "../../sandboxd/index.ts";
import { Standby } from "../../sandboxd/standby.ts";
import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { AioRuntime } from "./aio/runtime.ts";
import { publishSocket } from "./container/socket-directory.ts";
import type { ContainerCredentials } from "./container-credentials.ts";
import type { ContainerGuards } from "./container-guards.ts";
import type { Egresses } from "./egress.ts";
import type { ContainerLiveness } from "./liveness.ts";
import type { ContainerObjects } from "./objects/container-objects.ts";
import type { ParsedRef } from "./objects/labels.ts";
import type { Pausing } from "./pausing.ts";

export interface ReachingParts {
  readonly world: World;
  readonly layout: Layout;
  readonly objects: ContainerObjects;
  readonly credentials: ContainerCredentials;
  readonly liveness: ContainerLiveness;
  readonly pausing: Pausing;
  readonly guards: ContainerGuards;
  readonly egresses: Egresses;
  /** `null` where sandboxes have the daemon inside. */
  readonly aio: AioRuntime | null;
  /** Whether containers may have a way out. */
  readonly network: boolean;
}

/** A daemon that was killed inside is started again by its supervisor, on a new socket. */
const RESTART_LOOKS = 20;
const RESTART_LOOK_MS = 50;

export class Reaching {
  readonly #parts: ReachingParts;
  readonly #standby: Standby;
  readonly #attachments = new Set<Attachment>();

  constructor(parts: ReachingParts) {
    this.#parts = parts;
    this.#standby = new Standby(parts.world);
  }

  async attach({ name, containerId }: ParsedRef, target: Target, signal: AbortSignal): Promise<Attachment> {
    const { credentials, pausing } = this.#parts;
    const unwant = pausing.want(containerId, name);
    try {
      await credentials.locate(name);
      if (pausing.mayStandStill(containerId)) await pausing.moving(containerId);
      const open = () => this.#open(name, target, signal);
      const inner =
        this.#standby.claim(name, target) ??
        (await this.reach(name, target, () => pausing.unlessSilent(containerId, open)));
      void inner.closed.then(unwant);
      credentials.note(name, target);
      const attachment = await this.#dressed(name, inner);
      this.#attachments.add(attachment);
      void attachment.closed.then(() => this.#attachments.delete(attachment));
      return attachment;
    } catch (error) {
      unwant();
      throw error;
    }
  }

  async rebind(
    { name, containerId }: ParsedRef,
    target: Target,
    from: Credentials,
    signal: AbortSignal,
  ): Promise<void> {
    const { credentials, pausing, aio } = this.#parts;
    const unwant = pausing.want(containerId, name);
    try {
      await credentials.locate(name);
      const rebind = () => aio?.rebind(target, from, name) ?? this.#rebind(name, target, from, signal);
      await this.reach(name, target, () => pausing.unlessSilent(containerId, rebind));
      credentials.note(name, target);
    } finally {
      unwant();
    }
  }

  /** A blank that was just made will be bound soon. */
  async connectAhead(name: ObjectName, spec: CreateSpec): Promise<void> {
    const { credentials, aio } = this.#parts;
    if (aio !== null) return;
    await credentials.locate(name);
    await this.#standby.prepare(name, credentials.target(name, spec.labels.sandboxId, spec));
  }

  async reach<T>(
    name: ObjectName,
    target: { readonly sandboxId: SandboxId; readonly generation: number; readonly ref: EngineRef },
    call: () => Promise<T>,
  ): Promise<T> {
    const { liveness, layout, world } = this.#parts;
    for (let looks = 0; ; looks++) {
      try {
        return await call();
      } catch (error) {
        if (!isSandlotError(error, "sandbox_unreachable")) throw error;
        const answer = await liveness.probe(target.ref);
        if (answer === "dead") throw lostError(target, error);
        if (answer === "unknown" || looks >= RESTART_LOOKS) throw error;
        if (!publishSocket(layout, name)) await sleep(world, RESTART_LOOK_MS);
      }
    }
  }

  drop(name: ObjectName): void {
    this.#standby.drop(name);
  }

  async close(): Promise<void> {
    this.#standby.close();
    await Promise.all([...this.#attachments].map((attachment) => attachment.close()));
  }

  #open(name: ObjectName, target: Target, signal: AbortSignal): Promise<Attachment> {
    const { credentials, world, aio } = this.#parts;
    if (aio !== null) return aio.attach(target, name, signal);
    const daemon = credentials.target(name, target.sandboxId, target);
    return DaemonAttachment.open(daemon, world, signal, this.#standby.take(name));
  }

  async #rebind(name: ObjectName, target: Target, from: Credentials, signal: AbortSignal): Promise<void> {
    const { credentials, world } = this.#parts;
    const before = credentials.target(name, target.sandboxId, from);
    const after = credentials.target(name, target.sandboxId, target);
    const ahead = this.#standby.take(name);
    this.#standby.bound(name, target, await DaemonAttachment.rebind(before, after, world, signal, ahead));
  }

  /** An attachment as it is given out. Without a way out, and with limits that are known, nothing has to be read for it. */
  async #dressed(name: ObjectName, inner: Attachment): Promise<Attachment> {
    const { network, layout, guards, objects, egresses } = this.#parts;
    const hasWayOut = network && existsSync(egressPath(layout, name));
    const known = hasWayOut ? null : guards.limitedNow(name, inner.sandbox);
    if (known !== null) return withSandbox(inner, known);
    try {
      const object = await objects.get(name);
      if (object === null) return inner;
      // One that lost its way out, because the process that carried it was killed, gets another one.
      if (hasWayOut) await egresses.join(object);
      return withSandbox(inner, await guards.limited(object, inner.sandbox));
    } catch (error) {
      await inner.close();
      throw error;
    }
  }
}

function withSandbox(inner: Attachment, sandbox: Sandbox): Attachment {
  if (sandbox === inner.sandbox) return inner;
  const { closed, connect } = inner;
  return { sandbox, closed, ...(connect && { connect: connect.bind(inner) }), close: () => inner.close() };
}

function lostError(
  { sandboxId, generation }: { readonly sandboxId: SandboxId; readonly generation: number },
  cause: unknown,
): SandlotError {
  return new SandlotError("sandbox_lost", { sandboxId, generation, reason: "crashed" }, { cause });
}
