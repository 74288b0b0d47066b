/**
 * Which provisioned sandboxes live. A record counts only while the fleet has its sandbox and its key exists.
 *
 * Invariants
 * - "It has ended" is certain. A store that recovers may not know a sandbox yet: then it is `store_recovering`.
 */

import type { SandboxSummary } from "@sandlot/contract";
import type { Fleet } from "../../fleet.ts";
import type { ApiKeys } from "../keys/api-keys.ts";
import type { ProvisionedSandbox } from "./provisioned-sandboxes.ts";

/** Ended sandboxes that are remembered, so that a list does not look for each of them again. */
const ENDED_MAX = 10_000;

export interface LivingParts {
  readonly fleet: Pick<Fleet, "find" | "list">;
  readonly keys: Pick<ApiKeys, "find">;
}

interface Living {
  readonly record: ProvisionedSandbox;
  readonly summary: SandboxSummary;
}

export class LivingRecords {
  readonly #parts: LivingParts;
  readonly #ended = new Set<string>();

  constructor(parts: LivingParts) {
    this.#parts = parts;
  }

  /** The record's sandbox; `null` when it has certainly ended, or its key is gone. */
  async one(record: ProvisionedSandbox): Promise<SandboxSummary | null> {
    const { fleet, keys } = this.#parts;
    const { user, thread } = record;
    const summary = await fleet.find({ user, thread }, { certain: true });
    return isOf(record, summary) && (await keys.find(record.keyId)) !== null ? summary : null;
  }

  async all(records: readonly ProvisionedSandbox[]): Promise<readonly Living[]> {
    if (records.length === 0) return [];
    const present = await this.#present();
    const here: Living[] = [];
    for (const record of records) {
      const summary = present.get(record.sandboxId) ?? (await this.#unlisted(record));
      if (isOf(record, summary)) here.push({ record, summary });
    }
    const valid = await Promise.all(here.map(({ record }) => this.#hasKey(record)));
    return here.filter((_, index) => valid[index]);
  }

  /** Those that may have ended: the list shows no sandbox of theirs, or their key is gone. */
  async doubtful(records: readonly ProvisionedSandbox[]): Promise<readonly ProvisionedSandbox[]> {
    if (records.length === 0) return [];
    const present = await this.#present();
    const isLiving = await Promise.all(
      records.map(async (one) => isOf(one, present.get(one.sandboxId) ?? null) && (await this.#hasKey(one))),
    );
    return records.filter((_, index) => isLiving[index] === false);
  }

  async #present(): Promise<ReadonlyMap<string, SandboxSummary>> {
    return new Map((await this.#parts.fleet.list()).map((summary) => [summary.sandboxId, summary]));
  }

  async #hasKey({ keyId }: ProvisionedSandbox): Promise<boolean> {
    return (await this.#parts.keys.find(keyId)) !== null;
  }

  /** A sandbox that has ended stays so: each is looked for once, because a list may be asked for often. */
  async #unlisted(record: ProvisionedSandbox): Promise<SandboxSummary | null> {
    if (this.#ended.has(record.nonce)) return null;
    const { user, thread } = record;
    const summary = await this.#parts.fleet.find({ user, thread }, { certain: true });
    if (isOf(record, summary)) return summary;
    if (this.#ended.size >= ENDED_MAX) this.#ended.clear();
    this.#ended.add(record.nonce);
    return null;
  }
}

function isOf({ sandboxId }: ProvisionedSandbox, summary: SandboxSummary | null): summary is SandboxSummary {
  return summary?.sandboxId === sandboxId && (summary.state === "leased" || summary.state === "parked");
}
