/**
 * Attaches to the daemon of a container. The container may be paused, and its image may have a server instead of the
 * daemon.
 *
 *   attach   known to be paused? unpaused ─▶ connected (`sandboxd/attacher.ts`) ─▶ egress and disk budget in place
 *
 * Invariant: a supervisor starts a killed daemon again, on a new socket, so the attacher retries while the container
 * lives.
 */

import { existsSync } from "node:fs";
import type { Attachment, CreateSpec, Credentials, Target } from "../../backend/backend.ts";
import { egressPath, type Layout, type ObjectName } from "../../host/layout.ts";
import { Attacher, type Reached, withSandbox } from "../../sandboxd/attacher.ts";
import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { AioRuntime } from "./aio/runtime.ts";
import { publishSocket } from "./container/socket-directory.ts";
import type { ContainerCredentials } from "./container-credentials.ts";
import type { ContainerGuards } from "./container-guards.ts";
import type { ContainerPauses } from "./container-pauses.ts";
import type { Egresses } from "./egress.ts";
import type { ContainerLiveness } from "./liveness.ts";
import type { ContainerObjects } from "./objects/container-objects.ts";
import type { ParsedRef } from "./objects/labels.ts";

export interface ReachingParts {
  readonly world: World;
  readonly layout: Layout;
  readonly objects: ContainerObjects;
  readonly credentials: ContainerCredentials;
  readonly liveness: ContainerLiveness;
  readonly pausing: ContainerPauses;
  readonly guards: ContainerGuards;
  readonly egresses: Egresses;
  /** `null` where sandboxes have the daemon inside. */
  readonly aio: AioRuntime | null;
  /** Whether containers may have an egress. */
  readonly network: boolean;
}

/** How long a restarted daemon may take. */
const RESTART_LOOKS = 20;
const RESTART_LOOK_MS = 50;

export class ContainerAttacher {
  readonly #parts: ReachingParts;
  readonly #attacher: Attacher;

  constructor(parts: ReachingParts) {
    this.#parts = parts;
    const { world, credentials, liveness } = parts;
    this.#attacher = new Attacher({
      ...{ world, credentials },
      probe: (ref) => liveness.probe(ref),
      dress: (name, inner) => this.#withLimitsAndEgress(name, inner),
      mayAnswerNow: (name, looks) => this.#mayAnswerNow(name, looks),
    });
  }

  async attach({ name, containerId }: ParsedRef, target: Target, signal: AbortSignal): Promise<Attachment> {
    const { credentials, pausing, aio } = this.#parts;
    const unwant = pausing.want(containerId, name);
    try {
      await credentials.locate(name);
      if (pausing.mayStandStill(containerId)) await pausing.moving(containerId);
      const attachment = await this.#attacher.attach(name, target, signal, {
        around: (open) => pausing.unlessSilent(containerId, open),
        ...(aio !== null && { open: () => aio.attach(target, name, signal) }),
      });
      void attachment.closed.then(unwant);
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
      await this.#attacher.rebind(name, target, from, signal, {
        around: (bind) => pausing.unlessSilent(containerId, bind),
        ...(aio !== null && { bind: () => aio.rebind(target, from, name) }),
      });
    } finally {
      unwant();
    }
  }

  /** Prewarms connections to a blank, which will be bound soon. */
  async connectAhead(name: ObjectName, spec: CreateSpec): Promise<void> {
    const { credentials, aio } = this.#parts;
    if (aio !== null) return;
    await credentials.locate(name);
    await this.#attacher.prepare(name, spec);
  }

  reach<T>(name: ObjectName, target: Reached, call: () => Promise<T>): Promise<T> {
    return this.#attacher.reach(name, target, call);
  }

  drop(name: ObjectName): void {
    this.#attacher.drop(name);
  }

  close(): Promise<void> {
    return this.#attacher.close();
  }

  async #mayAnswerNow(name: ObjectName, looks: number): Promise<boolean> {
    const { layout, world } = this.#parts;
    if (looks >= RESTART_LOOKS) return false;
    if (!publishSocket(layout, name)) await sleep(world, RESTART_LOOK_MS);
    return true;
  }

  /** The attachment for the caller. Without an egress, and with known limits, it reads nothing. */
  async #withLimitsAndEgress(name: ObjectName, inner: Attachment): Promise<Attachment> {
    const { network, layout, guards, objects, egresses } = this.#parts;
    const hasWayOut = network && existsSync(egressPath(layout, name));
    const known = hasWayOut ? null : guards.limitedNow(name, inner.sandbox);
    if (known !== null) return withSandbox(inner, known);
    try {
      const object = await objects.get(name);
      if (object === null) return inner;
      // A container whose egress process was killed gets a new one.
      if (hasWayOut) await egresses.join(object);
      return withSandbox(inner, await guards.limited(object, inner.sandbox));
    } catch (error) {
      await inner.close();
      throw error;
    }
  }
}
