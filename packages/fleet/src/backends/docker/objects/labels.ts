/**
 * Labels of containers, and the names that go with them. They hold what `backend/labels.ts` allows: hashes and ids.
 */

import type { EngineRef, FleetId } from "@sandlot/contract";
import { z } from "zod";
import type { Place } from "../../../backend/backend.ts";
import type { Labels } from "../../../backend/labels.ts";
import type { ObjectName } from "../../../host/layout.ts";

const FLEET = "sandlot.fleet";
const SANDBOX = "sandlot.sandbox";
const GENERATION = "sandlot.generation";
const THREAD = "sandlot.thread";
const BLUEPRINT = "sandlot.blueprint";
const PLACE = "sandlot.place";
const ENGINE = "sandlot.engine";

const labelsSchema = z.object({
  [FLEET]: z.string(),
  [SANDBOX]: z.string(),
  [GENERATION]: z.coerce.number().int(),
  [THREAD]: z.string().optional(),
  [BLUEPRINT]: z.string(),
  [PLACE]: z.string().regex(/^(home$|slot:)/),
  [ENGINE]: z.string().optional(),
});

export interface Labelled {
  readonly name: ObjectName;
  readonly labels: Labels;
  readonly place: Place;
}

export function containerLabels(labels: Labels, place: Place): Readonly<Record<string, string>> {
  return {
    [FLEET]: labels.fleet,
    [SANDBOX]: labels.sandboxId,
    [GENERATION]: String(labels.generation),
    ...(labels.threadKey === null ? {} : { [THREAD]: labels.threadKey }),
    [BLUEPRINT]: labels.blueprintHash,
    [PLACE]: place,
    ...(labels.engine === undefined ? {} : { [ENGINE]: labels.engine }),
  };
}

/** `null` for a container with labels of other software, or with some labels missing. */
export function parseLabels(found: Readonly<Record<string, string>> | null | undefined): Labelled | null {
  const parsed = labelsSchema.safeParse(found ?? {});
  if (!parsed.success) return null;
  const { data } = parsed;
  const labels = {
    fleet: data[FLEET],
    sandboxId: data[SANDBOX],
    generation: data[GENERATION],
    threadKey: data[THREAD] ?? null,
    blueprintHash: data[BLUEPRINT],
    ...(data[ENGINE] === undefined ? {} : { engine: data[ENGINE] }),
  } as Labels;
  return { name: `${labels.sandboxId}-${labels.generation}`, labels, place: data[PLACE] as Place };
}

/** Filters for all containers of a fleet, of one sandbox, or of one object. */
export function fleetFilter(fleet: FleetId, sandboxId?: string, generation?: number): readonly string[] {
  return [
    `${FLEET}=${fleet}`,
    ...(sandboxId === undefined ? [] : [`${SANDBOX}=${sandboxId}`]),
    ...(generation === undefined ? [] : [`${GENERATION}=${generation}`]),
  ];
}

export function containerName(name: ObjectName): string {
  return `sandlot-${name}`;
}

/**
 * References: the engine's id of the container, and the object's name, which is never used twice.
 *
 *   <container id>/<sandboxId>-<generation>      "-" stands for a container that is not known yet
 */
export interface ParsedRef {
  readonly containerId: string | null;
  readonly name: ObjectName;
}

const NONE = "-";
/** Apple's container has names instead of ids. */
const REF_PATTERN = /^([0-9a-f]{12,64}|sandlot-[A-Za-z0-9_-]+|-)\/([A-Za-z0-9_-]+)$/;

export function formatRef({ containerId, name }: ParsedRef): EngineRef {
  return `${containerId ?? NONE}/${name}` as EngineRef;
}

/** `null` for a reference of another form. */
export function parseRef(ref: EngineRef): ParsedRef | null {
  const [, id, name] = REF_PATTERN.exec(ref) ?? [];
  if (id === undefined || name === undefined) return null;
  return { containerId: id === NONE ? null : id, name };
}

/** Splits `<sandboxId>-<generation>`. */
export function partsOf(name: ObjectName): { readonly sandboxId: string; readonly generation: number } {
  const at = name.lastIndexOf("-");
  return { sandboxId: name.slice(0, at), generation: Number(name.slice(at + 1)) };
}
