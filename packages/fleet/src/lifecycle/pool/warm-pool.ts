/** The warm pool keeps blanks ready, in the background and off the hot path, and never over the limit. */

import { isSandlotError, SandlotError } from "@sandlot/contract";
import type { Backend } from "../../backend/backend.ts";
import { blueprintNamed } from "../../config/blueprint-named.ts";
import type { Settings } from "../../config/settings.ts";
import { isBlank, type SandboxRecord } from "../../store/record.ts";
import type { Store } from "../../store/store.ts";
import { within } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { SandboxMaker } from "../acquire/maker.ts";
import type { Admission } from "../admission/admission.ts";
import { LastSeen } from "../housekeeping/last-seen.ts";
import { planPool } from "../housekeeping/plans.ts";
import type { Membership } from "../session/membership.ts";
import type { Retirement } from "../stop/retirement.ts";

export interface WarmPoolParts {
  readonly settings: Settings;
  readonly world: World;
  readonly store: Store;
  readonly backend: Backend;
  readonly membership: Membership;
  readonly admission: Admission;
  readonly maker: SandboxMaker;
  readonly retirement: Retirement;
}

/** Blanks made at the same time: enough to refill quickly, few enough to leave the engine to waiting callers. */
const PARALLEL_MAX = 4;

/** What a person has to mend. Tried at every look, a missing image would be asked for every few seconds. */
const LASTING = ["image_unavailable", "environment_failed"] as const;
const LASTING_MS = 60_000;

export class WarmPool {
  readonly #parts: WarmPoolParts;
  /** When a blueprint's next blank may be tried, after a failure that lasts. */
  readonly #notBefore = new Map<string, number>();
  readonly #stale = new LastSeen<string, string>();

  constructor(parts: WarmPoolParts) {
    this.#parts = parts;
  }

  /** True when something changed, so that another look soon is useful. */
  async refill(): Promise<boolean> {
    const { settings, world, store, membership, admission, retirement } = this.#parts;
    if (!membership.mayJudge()) return false;
    const all = await store.list();
    const records = all.filter((record) => membership.isOurs(record));
    const blanks = records.filter(isBlank);
    const seen = blanks.map((record) => [record.sandboxId, record.blueprintHash] as const);
    const staleFor = this.#stale.observe(seen, world.monotonicMs(), membership.sightSince());
    const graceMs = blanks.length > 0 && (await store.sessions()).length > 1 ? settings.orphanTimeoutMs : 0;
    const mayEndStale = ({ sandboxId }: SandboxRecord) => (staleFor.get(sandboxId) ?? 0) >= graceMs;
    const plan = planPool(records, settings, mayEndStale, all.length, await this.#outdated(blanks));
    for (const { record, reason } of plan.stop) await retirement.stopUnheld(record, reason);
    // Callers that wait for room come first.
    if (admission.queued > 0) return false;
    const due = plan.create.filter((name) => (this.#notBefore.get(name) ?? 0) <= world.monotonicMs());
    const made = await Promise.allSettled(due.slice(0, PARALLEL_MAX).map((name) => this.#createBlank(name)));
    const failed = made.find((result) => result.status === "rejected");
    if (failed !== undefined) throw failed.reason;
    return due.length > PARALLEL_MAX;
  }

  async #outdated(blanks: readonly SandboxRecord[]): Promise<ReadonlySet<SandboxRecord>> {
    const { isOutdated } = this.#parts.backend;
    if (isOutdated === undefined) return new Set();
    const found = await Promise.all(blanks.map(async (blank) => ((await isOutdated(blank)) ? [blank] : [])));
    return new Set(found.flat());
  }

  async #createBlank(name: string): Promise<void> {
    const { settings, world, maker, admission } = this.#parts;
    const blueprint = blueprintNamed(settings, name);
    const answer = await maker.reserve(null, blueprint, admission.limits(null));
    if (answer.kind !== "reserved") return;
    const timeoutMs = settings.acquireTimeoutMs;
    const late = () => new SandlotError("acquire_timeout", { stage: "creating a blank", timeoutMs });
    const make = (signal: AbortSignal) => maker.make(answer.record, blueprint, null, signal);
    try {
      await within(world, timeoutMs, undefined, late, make);
    } catch (error) {
      const isLasting = LASTING.some((code) => isSandlotError(error, code));
      if (isLasting) this.#notBefore.set(name, world.monotonicMs() + LASTING_MS);
      throw error;
    }
  }
}
