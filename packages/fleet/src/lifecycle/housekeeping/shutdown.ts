/**
 * Shutdown: drain, then hand over. By default every sandbox stays for the next instance. With `destroy` the sandboxes
 * without holders are stopped, in parallel and in bounded time.
 *
 * No step can block closing: each has a deadline, and a failure is reported instead of thrown.
 */

import type { Backend } from "../../backend/backend.ts";
import type { Settings } from "../../config/settings.ts";
import type { CloseOptions } from "../../fleet.ts";
import { type EventBus, problemOf } from "../../observe/event-bus.ts";
import { isBlank, isParked } from "../../store/record.ts";
import type { Store } from "../../store/store.ts";
import { sleep, type UnderWay, within } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { Leases } from "../hold/leases.ts";
import type { Slots } from "../hold/slots.ts";
import type { Membership } from "../session/membership.ts";
import type { Retirement } from "../stop/retirement.ts";
import type { Loop } from "./loop.ts";

export interface ShutdownParts {
  readonly settings: Settings;
  readonly world: World;
  readonly store: Store;
  readonly backend: Backend;
  readonly membership: Membership;
  readonly slots: Slots;
  readonly leases: Leases;
  readonly retirement: Retirement;
  readonly bus: EventBus;
  /** Every loop but the renewer, which must outlive the drain. */
  readonly loops: readonly Loop[];
  readonly renewer: Loop;
  readonly provider: { close(): Promise<void> };
  readonly underWay: UnderWay;
  readonly automatic: { close(): Promise<void> } | null;
  readonly timeline: { close(): Promise<void> } | null;
  /** From here on the fleet ignores the engine's responses, and its events start no work. */
  readonly end: () => void;
}

/** How often a draining fleet checks whether the last lease is gone. */
const DRAIN_POLL_MS = 20;

export async function shutDown(parts: ShutdownParts, options: CloseOptions): Promise<void> {
  const { settings, retirement, renewer, loops, store, backend, membership, bus } = parts;
  const step = async (what: string, work: () => Promise<unknown>) => {
    try {
      await within(parts.world, settings.stopTimeoutMs, undefined, () => new Error(`${what} took too long`), work);
    } catch (error) {
      bus.emit({ type: "close-failed", what, problem: problemOf(error) });
    }
  };
  const grounded = parts.provider.close();
  await drain(parts, options.drainMs ?? 0);
  await step("checkpoints", async () => parts.automatic?.close());
  parts.end();
  await step("openings under way", () => grounded);
  await step("housekeeping", () => Promise.all(loops.map((loop) => loop.stop())));
  await letGoOfSlots(parts, step);
  if (options.destroy === true) await step("destroy", () => destroyUnheld(parts));
  await step("stops under way", async () => {
    await parts.underWay.idle();
    await retirement.idle();
  });
  await step("renewer", async () => {
    await renewer.stop();
    await membership.close();
  });
  // Our holds and unfinished work pass to the next instance.
  await step("session", () => store.leave(membership.instance));
  await step("timeline", async () => parts.timeline?.close());
  await step("backend", () => backend.close());
  await step("store", () => store.close());
  bus.close();
}

async function drain({ world, leases }: ShutdownParts, drainMs: number): Promise<void> {
  const until = world.monotonicMs() + drainMs;
  while (leases.size > 0 && world.monotonicMs() < until) await sleep(world, DRAIN_POLL_MS);
}

/** Closes every connection. Leases that are still out end here; their sandboxes do not. */
async function letGoOfSlots(
  { slots, store, membership }: ShutdownParts,
  step: (what: string, work: () => Promise<unknown>) => Promise<void>,
) {
  await Promise.all(
    slots.held().map(async (slot) => {
      const { sandboxId, generation, seq } = slot;
      slot.lose("session-lost");
      await step("release", () =>
        store.unhold({ sandboxId, generation, instance: membership.instance, seq, used: true }),
      );
    }),
  );
}

async function destroyUnheld({ store, retirement, membership }: ShutdownParts): Promise<void> {
  const records = (await store.list()).filter((record) => membership.isOurs(record));
  const unheld = records.filter((record) => isBlank(record) || isParked(record));
  const answers = await Promise.all(unheld.map((record) => retirement.stopUnheld(record, "shutdown")));
  await Promise.all(
    answers.map((answer) => (answer.kind === "stopping" ? retirement.finishStop(answer.record) : undefined)),
  );
}
