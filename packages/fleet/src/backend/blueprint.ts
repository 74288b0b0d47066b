/**
 * A blueprint: what a sandbox is made from. Two sandboxes of equal blueprints are interchangeable while blank, so the
 * hash covers everything that a sandbox could tell apart.
 */

import { createHash } from "node:crypto";
import type { BlueprintHash } from "@sandlot/contract";
import type { AllowRule, BoundSecret } from "./network/policy.ts";

export interface Blueprint {
  /** What an engine that has images starts from. */
  readonly image?: string | undefined;
  /** What an engine that has several isolates with, by the engine's name for it. */
  readonly runtime?: string | undefined;
  readonly environment: Readonly<Record<string, string>>;
  readonly limits: {
    readonly memoryBytes?: number | undefined;
    readonly cpuCount?: number | undefined;
    /** Its share of busy processors, beside an ordinary service's 100. */
    readonly cpuWeight?: number | undefined;
    readonly pidsMax?: number | undefined;
    readonly diskBytes?: number | undefined;
    readonly filesMax?: number | undefined;
  };
  readonly mounts: readonly { readonly hostPath: string; readonly sandboxPath: string; readonly readOnly: boolean }[];
  readonly network: {
    readonly mode: "none" | "allowlist" | "open";
    readonly allow: readonly AllowRule[];
    /** Headers that the way out adds, so that the sandbox never has their values. */
    readonly secrets?: readonly BoundSecret[] | undefined;
  };
}

/** A blueprint as a fleet's settings have it. */
export interface NamedBlueprint {
  readonly name: string;
  readonly hash: BlueprintHash;
  readonly blueprint: Blueprint;
}

/**
 * Hash over the blueprint with sorted keys, so that the order of keys in a file does not matter. A secret's value is
 * not in it: the sandbox cannot tell one value from another, and a hash of it would be somewhere to guess it from.
 */
export function hashBlueprint(
  backend: string,
  blueprint: Omit<Blueprint, "limits"> & { readonly limits: Readonly<Record<string, unknown>> },
): BlueprintHash {
  const { secrets = [], ...network } = blueprint.network;
  const headers = secrets.map(({ value: _, ...told }) => told);
  const told = { ...blueprint, network: headers.length === 0 ? network : { ...network, secrets: headers } };
  const text = JSON.stringify([backend, told], (_, value: unknown) =>
    value !== null && typeof value === "object" && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
      : value,
  );
  return createHash("sha256").update(text).digest("hex").slice(0, 32) as BlueprintHash;
}
