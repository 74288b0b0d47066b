/**
 * Names, references and labels of pods. Everyone with the role `view` reads them: they hold hashes and random ids only.
 *
 *   reference   <namespace>/sandlot-<sandboxId>/<uid>      another uid under the same name is another object
 *
 * Label keys are in clusters, and never change.
 */

import type { EngineRef, FleetId, SandboxId } from "@sandlot/contract";
import { z } from "zod";
import type { Place } from "../../../backend/backend.ts";
import type { Labels } from "../../../backend/labels.ts";

/** Keeps the pod object until it is proved that nothing of it runs. */
export const PROOF_FINALIZER = "sandlot.dev/proof";
/** Keeps the pod from running until its maker has asked the store again. */
export const INTENT_GATE = "sandlot.dev/intent";
/** An administrator's word that nothing of the pod runs: who, and when. */
export const CONFIRMED_DEAD = "sandlot.dev/confirmed-dead";

export const LABEL = {
  role: "sandlot.dev/role",
  fleet: "sandlot.dev/fleet",
  sandbox: "sandlot.dev/sandbox",
  generation: "sandlot.dev/generation",
  thread: "sandlot.dev/thread",
  blueprint: "sandlot.dev/blueprint",
  place: "sandlot.dev/place",
  network: "sandlot.dev/network",
  engine: "sandlot.dev/engine",
  /** On pods that try the cluster: the fleet that they belong to. */
  trial: "sandlot.dev/trial",
} as const;

/** What tells sandboxes from gateways and egress proxies in one namespace. */
export const ROLE = { sandbox: "sandbox", gateway: "gateway", egress: "egress", trial: "trial" } as const;

export type NetworkMode = "none" | "allowlist" | "open";

const labelsSchema = z.object({
  [LABEL.role]: z.literal(ROLE.sandbox),
  [LABEL.fleet]: z.string(),
  [LABEL.sandbox]: z.string(),
  [LABEL.generation]: z.coerce.number().int(),
  [LABEL.thread]: z.string().optional(),
  [LABEL.blueprint]: z.string(),
  [LABEL.place]: z.enum(["home", "slot"]),
  [LABEL.engine]: z.string().optional(),
});

export interface Labelled {
  readonly labels: Labels;
  readonly place: Place;
}

export interface ParsedRef {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

const REF_PATTERN = /^([a-z0-9-]+)\/(sandlot-[a-z0-9-]+)\/([0-9a-f-]{36})$/;

export function podName(sandboxId: SandboxId): string {
  return `sandlot-${sandboxId}`;
}

export function formatRef({ namespace, name, uid }: ParsedRef): EngineRef {
  return `${namespace}/${name}/${uid}` as EngineRef;
}

/** `null` for a reference of another form. */
export function parseRef(ref: EngineRef): ParsedRef | null {
  const [, namespace, name, uid] = REF_PATTERN.exec(ref) ?? [];
  return namespace === undefined || name === undefined || uid === undefined ? null : { namespace, name, uid };
}

export function podLabels(labels: Labels, place: Place, network: NetworkMode): Record<string, string> {
  return {
    [LABEL.role]: ROLE.sandbox,
    [LABEL.fleet]: labels.fleet,
    [LABEL.sandbox]: labels.sandboxId,
    [LABEL.generation]: String(labels.generation),
    ...(labels.threadKey === null ? {} : { [LABEL.thread]: labels.threadKey }),
    [LABEL.blueprint]: labels.blueprintHash,
    [LABEL.place]: place === "home" ? "home" : "slot",
    [LABEL.network]: network,
    ...(labels.engine === undefined ? {} : { [LABEL.engine]: labels.engine }),
  };
}

/** `null` for a pod of other software. */
export function parseLabels(found: Readonly<Record<string, string>>): Labelled | null {
  const parsed = labelsSchema.safeParse(found);
  if (!parsed.success) return null;
  const { data } = parsed;
  const labels = {
    fleet: data[LABEL.fleet],
    sandboxId: data[LABEL.sandbox],
    generation: data[LABEL.generation],
    threadKey: data[LABEL.thread] ?? null,
    blueprintHash: data[LABEL.blueprint],
    ...(data[LABEL.engine] === undefined ? {} : { engine: data[LABEL.engine] }),
  } as Labels;
  const place: Place = data[LABEL.place] === "home" ? "home" : slotOf(labels);
  return { labels, place };
}

/** The place of a blank's workspace. It is never used again. */
function slotOf({ sandboxId, generation }: Pick<Labels, "sandboxId" | "generation">): Place {
  return `slot:${sandboxId}-${generation}`;
}

/** Selects all pods of a fleet. */
export function fleetSelector(fleet: FleetId): string {
  return `${LABEL.fleet}=${fleet},${LABEL.role}=${ROLE.sandbox}`;
}
