/**
 * A blueprint: what a sandbox is made from. Two sandboxes of equal blueprints are interchangeable while blank, so the
 * hash covers everything that a sandbox could tell apart.
 */

import { createHash } from "node:crypto";
import type { BlueprintHash } from "@sandlot/contract";

export interface Blueprint {
  /** What an engine that has images starts from. */
  readonly image?: string | undefined;
  readonly environment: Readonly<Record<string, string>>;
  readonly limits: {
    readonly memoryBytes?: number | undefined;
    readonly cpuCount?: number | undefined;
    readonly pidsMax?: number | undefined;
    readonly diskBytes?: number | undefined;
  };
  readonly mounts: readonly { readonly hostPath: string; readonly sandboxPath: string; readonly readOnly: boolean }[];
  readonly network: {
    readonly mode: "none" | "allowlist" | "open";
    readonly allow: readonly { readonly host: string; readonly ports: readonly number[] }[];
  };
}

/** Hash over the blueprint with sorted keys, so that the order of keys in a file does not matter. */
export function hashBlueprint(backend: string, blueprint: Blueprint): BlueprintHash {
  const text = JSON.stringify([backend, blueprint], (_, value: unknown) =>
    value !== null && typeof value === "object" && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
      : value,
  );
  return createHash("sha256").update(text).digest("hex").slice(0, 32) as BlueprintHash;
}
