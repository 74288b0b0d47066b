/**
 * Enforces disk budgets where the file system does not. It reads the free space of the disk, one system call for all
 * sandboxes, and measures a workspace only when the disk lost so much that this one may be over. The writers of a
 * workspace over its budget are stopped.
 *
 *   within ──▶ exceeded (writers are stopped, API writes refused) ──▶ within, once files were removed
 *
 * Limits: a writer runs on until the next look and its measurement, so a budget is overshot by what can be written in
 * that time: `LOOK_EVERY_MS`, plus the walk, plus the stop. Files written while others free the same amount are found
 * at the next regular measurement, `MEASURE_AT_LEAST_MS`. That skips a workspace in which nothing ran since the last
 * one: an idle sandbox costs a comparison per look.
 *
 * Invariants
 * - One workspace is measured at a time. It rests for `REST_FACTOR` times its last measurement before the next regular
 *   one.
 * - `onExceeded` is called once per transgression: when a budget is first exceeded, and each time the usage has grown
 *   since.
 */

import { stat, statfs } from "node:fs/promises";
import { sleep } from "../../../world/waiting.ts";
import type { Timer, World } from "../../../world/world.ts";
import { DiskBudget, type DiskBudgetSpec } from "./budget.ts";

export const LOOK_EVERY_MS = 50;
const MEASURE_AT_LEAST_MS = 30_000;
const PLACE_EVERY_MS = 1_000;
const REST_FACTOR = 20;
/** Sent data is on the disk after this long, unless the machine is stuck. */
const SETTLE_MS = 25;
/** A workspace is measured when the disk lost this share of the workspace's remaining room. */
const SHARE_OF_REST = 0.5;
/** Less than this is noise: journals, other programs' logs. */
const NOISE_BYTES = 1024 * 1024;
const NOISE_FILES = 200;

interface Free {
  readonly bytes: number;
  readonly files: number;
}

interface Watched {
  readonly budget: DiskBudget;
  /** Read again only when the workspace has moved. */
  device: { readonly place: string; readonly id: number } | null;
  placeAskedAtMs: number;
  /** The maximum free space of its disk since its last measurement: what others free must not hide what it takes. */
  free: Free | null;
  measuredAtMs: number;
  tookMs: number;
}

export class DiskWatcher {
  readonly #world: World;
  readonly #watched = new Set<Watched>();
  #timer: Timer | null = null;
  #looking: Promise<void> | null = null;

  constructor(options: { readonly world: World }) {
    this.#world = options.world;
  }

  watch(spec: DiskBudgetSpec): DiskBudget {
    const onClose = () => {
      this.#watched.delete(watched);
      if (this.#watched.size === 0) this.close();
    };
    const budget = new DiskBudget(spec, onClose, () => sleep(this.#world, SETTLE_MS));
    const watched: Watched = { budget, device: null, placeAskedAtMs: 0, free: null, measuredAtMs: 0, tookMs: 0 };
    this.#watched.add(watched);
    this.#schedule();
    return budget;
  }

  /** Looks now, and resolves when everything due was measured. */
  look(): Promise<void> {
    this.#looking ??= this.#lookAtAll().finally(() => {
      this.#looking = null;
    });
    return this.#looking;
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = null;
    this.#watched.clear();
  }

  #schedule(): void {
    if (this.#timer !== null || this.#watched.size === 0) return;
    const next = async () => {
      await this.look();
      if (this.#timer !== timer) return;
      this.#timer = null;
      this.#schedule();
    };
    const timer = this.#world.timer(LOOK_EVERY_MS, () => void next(), { background: true });
    this.#timer = timer;
  }

  async #lookAtAll(): Promise<void> {
    const freeByDevice = new Map<number, Free | null>();
    for (const watched of [...this.#watched]) {
      const device = await this.#deviceOf(watched);
      if (device === null) continue;
      const free = freeByDevice.get(device.id) ?? (await freeAt(device.place));
      freeByDevice.set(device.id, free);
      // A workspace that has moved, or is gone: read its place again.
      if (free === null) watched.device = null;
      else {
        watched.free = most(watched.free, free);
        if (this.#isDue(watched, free)) await this.#measure(watched, free);
      }
    }
  }

  #isDue(watched: Watched, free: Free): boolean {
    if (watched.free === null) return true;
    const { budget } = watched;
    const rest = budget.rest;
    const step = budget.exceeded ? 0 : SHARE_OF_REST;
    const sinceMs = this.#world.monotonicMs() - watched.measuredAtMs;
    if (watched.free.bytes - free.bytes > Math.max(NOISE_BYTES, rest.bytes * step)) return true;
    if (watched.free.files - free.files > Math.max(NOISE_FILES, rest.files * step)) return true;
    const restMs = Math.max(budget.exceeded ? 0 : MEASURE_AT_LEAST_MS, REST_FACTOR * watched.tookMs, LOOK_EVERY_MS);
    if (sinceMs <= restMs) return false;
    if (budget.exceeded || budget.isBusy) return true;
    // Retried after the same interval.
    watched.measuredAtMs = this.#world.monotonicMs();
    return false;
  }

  /** Workspaces move seldom; when one has moved away, reading its disk fails, and its place is read again at once. */
  async #deviceOf(watched: Watched): Promise<Watched["device"]> {
    const now = this.#world.monotonicMs();
    if (watched.device !== null && now - watched.placeAskedAtMs < PLACE_EVERY_MS) return watched.device;
    watched.placeAskedAtMs = now;
    return deviceOf(watched);
  }

  async #measure(watched: Watched, free: Free): Promise<void> {
    const from = this.#world.monotonicMs();
    const { free: before } = watched;
    if (before !== null) watched.budget.noteLoss(before.bytes - free.bytes, before.files - free.files);
    await watched.budget.measure();
    watched.free = free;
    watched.measuredAtMs = this.#world.monotonicMs();
    watched.tookMs = watched.measuredAtMs - from;
  }
}

async function deviceOf(watched: Watched): Promise<Watched["device"]> {
  const place = watched.budget.place();
  if (place === null || place === watched.device?.place) return place === null ? null : watched.device;
  const found = await stat(place).catch(() => null);
  watched.device = found === null ? null : { place, id: found.dev };
  return watched.device;
}

/** `null` stays: not measured yet. */
function most(before: Free | null, now: Free): Free | null {
  if (before === null) return null;
  return { bytes: Math.max(before.bytes, now.bytes), files: Math.max(before.files, now.files) };
}

async function freeAt(path: string): Promise<Free | null> {
  const found = await statfs(path).catch(() => null);
  return found === null ? null : { bytes: found.bsize * found.bfree, files: found.ffree };
}
