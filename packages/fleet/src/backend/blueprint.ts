/**
 * A blueprint: what a sandbox is made from. Two sandboxes of equal blueprints are interchangeable while blank, so the
 * hash covers every difference that a sandbox could observe.
 */

import { createHash } from "node:crypto";
import type { BlueprintHash } from "@sandlot/contract";
import type { AllowRule, BoundSecret } from "./network/policy.ts";
import type { PodSettings } from "./pod-settings.ts";

/** A directory that sandboxes see: one of the host, or a volume that the engine knows by this name. */
export type BlueprintMount = { readonly sandboxPath: string; readonly readOnly: boolean } & (
  | { readonly hostPath: string; readonly volume?: undefined }
  | { readonly volume: string; readonly hostPath?: undefined }
);

export interface Blueprint {
  /** The image, for an engine that has images. */
  readonly image?: string | undefined;
  /** The engine's name of the runtime that isolates the sandbox, for an engine that has several. */
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
  readonly mounts: readonly BlueprintMount[];
  /** Where and how a pod is scheduled, for an engine that has pods. */
  readonly pod?: PodSettings | undefined;
  readonly network: {
    readonly mode: "none" | "allowlist" | "open";
    readonly allow: readonly AllowRule[];
    /** Headers that the egress adds, so that the sandbox never has their values. */
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
 * Hash over the blueprint with sorted keys, so that the order of keys in a file does not matter. It leaves out the
 * values of secrets: a sandbox cannot tell one value from another, and the hash would let an attacker guess the value.
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
