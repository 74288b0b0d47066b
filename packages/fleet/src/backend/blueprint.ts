/**
 * A blueprint: what a sandbox is made from. Two sandboxes of equal blueprints are interchangeable while blank, so the
 * hash covers every difference that a sandbox could observe.
 */

import { createHash } from "node:crypto";
import { type BlueprintHash, type HomeMode, KEPT_HOME, TEMPORARY_HOME } from "@sandlot/contract";
import type { AllowRule, BoundSecret } from "./network/policy.ts";
import type { MirrorConsent, RegistryTool } from "./network/registry-rules.ts";
import type { PodSettings } from "./pod-settings.ts";

/** A directory that sandboxes see: one of the host, or a volume that the engine knows by this name. */
export type BlueprintMount = {
  readonly sandboxPath: string;
  readonly readOnly: boolean;
  /** May take a place of Sandlot's own: `/mnt/acp-workspace`, or one below `/mnt/skills`. */
  readonly replaces?: boolean | undefined;
} & (
  | { readonly hostPath: string; readonly volume?: undefined }
  | { readonly volume: string; readonly hostPath?: undefined }
);

export interface Blueprint {
  /** The image, for an engine that has images. */
  readonly image?: string | undefined;
  /** The engine's name of the runtime that isolates the sandbox, for an engine that has several. */
  readonly runtime?: string | undefined;
  readonly environment: Readonly<Record<string, string>>;
  /** Whether the home is a part of the workspace (`kept`, also where this is absent) or ends with the sandbox. */
  readonly home?: HomeMode | undefined;
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
  /** What is built once and mounted read-only at /opt/env in every sandbox. */
  readonly setup?: EnvironmentSetup | undefined;
  /** Where and how a pod is scheduled, for an engine that has pods. */
  readonly pod?: PodSettings | undefined;
  readonly network: {
    readonly mode: "none" | "allowlist" | "open";
    readonly allow: readonly AllowRule[];
    /** Headers that the egress adds, so that the sandbox never has their values. */
    readonly secrets?: readonly BoundSecret[] | undefined;
    /** Tools that may read packages where the machine's own tools do. */
    readonly registries?: readonly RegistryTool[] | undefined;
    readonly mirrors?: readonly MirrorConsent[] | undefined;
  };
}

export interface EnvironmentSetup {
  /** Run by `sh -e` in a directory with the files. */
  readonly script: string;
  /** Files of the host, by their names there. */
  readonly files: Readonly<Record<string, string>>;
  readonly network: Blueprint["network"];
  readonly timeoutMs: number;
  readonly diskBytes: number;
}

/** A blueprint as a fleet's settings have it. */
export interface NamedBlueprint {
  readonly name: string;
  readonly hash: BlueprintHash;
  readonly blueprint: Blueprint;
  /** What differs from the fleet's settings of checkpoints. */
  readonly checkpoints?: {
    readonly automatic?: boolean | undefined;
    readonly leftOut?: readonly string[] | undefined;
  };
}

/** The blueprint with more mounts. One at the place of a configured mount replaces it. */
export function withMounts({ name, hash, blueprint }: NamedBlueprint, mounts: Blueprint["mounts"]): NamedBlueprint {
  if (mounts.length === 0) return { name, hash, blueprint };
  const places = new Set(mounts.map(({ sandboxPath }) => sandboxPath));
  const kept = blueprint.mounts.filter(({ sandboxPath }) => !places.has(sandboxPath));
  const sorted = [...mounts].sort((a, b) => (a.sandboxPath < b.sandboxPath ? -1 : 1));
  const told = sorted.map(({ hostPath, sandboxPath, readOnly }) => [hostPath, sandboxPath, readOnly]);
  const text = JSON.stringify([hash, told]);
  return {
    name,
    hash: createHash("sha256").update(text).digest("hex").slice(0, 32) as BlueprintHash,
    blueprint: { ...blueprint, mounts: [...kept, ...mounts] },
  };
}

/** The path of the home in a blueprint's sandboxes. */
export function homePathOf({ home }: Pick<Blueprint, "home">): string {
  return home === "temporary" ? TEMPORARY_HOME : KEPT_HOME;
}

/** Limits of a build leave nothing that a sandbox could see. */
function withoutValues({ script, files, network }: EnvironmentSetup): unknown {
  const { secrets = [], ...rest } = network;
  return { script, files, network: { ...rest, secrets: secrets.map(({ value: _, ...told }) => told) } };
}

/** Without its empty lists, which earlier versions did not know. */
function filled(lists: Readonly<Record<string, readonly unknown[]>>): Readonly<Record<string, readonly unknown[]>> {
  return Object.fromEntries(Object.entries(lists).filter(([, list]) => list.length > 0));
}

/**
 * Hash over the blueprint with sorted keys, so that the order of keys in a file does not matter. It leaves out the
 * values of secrets: a sandbox cannot tell one value from another, and the hash would let an attacker guess the value.
 * It leaves out a kept home, which is the default: versions that knew no other made sandboxes that go on.
 */
export function hashBlueprint(
  backend: string,
  blueprint: Omit<Blueprint, "limits"> & { readonly limits: Readonly<Record<string, unknown>> },
): BlueprintHash {
  const { home, setup, ...rest } = blueprint;
  const { secrets = [], registries = [], mirrors = [], ...network } = rest.network;
  const headers = secrets.map(({ value: _, ...told }) => told);
  const kept = home === "temporary" ? { ...rest, home } : rest;
  const told = {
    ...kept,
    ...(setup !== undefined && { setup: withoutValues(setup) }),
    network: { ...network, ...filled({ secrets: headers, registries, mirrors }) },
  };
  const text = JSON.stringify([backend, told], (_, value: unknown) =>
    value !== null && typeof value === "object" && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
      : value,
  );
  return createHash("sha256").update(text).digest("hex").slice(0, 32) as BlueprintHash;
}
